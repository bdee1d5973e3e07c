//! Images that are run.

use clap::Args;

use crate::cli::args::{Network, Settings, Surroundings};

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Image: its name in the catalogue, or a name that the store knows
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// Command to run instead of the image's own; a `--` before it is left out
    #[arg(value_name = "CMD", trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
    /// Give it a terminal of its own
    #[arg(short, long)]
    pub tty: bool,
    /// Let it read standard input; it always does, so this is for those who are used to typing `-it`
    #[arg(short, long)]
    pub interactive: bool,
    /// User to run as
    #[arg(short, long, value_name = "USER[:GROUP]")]
    pub user: Option<String>,
    /// Environment variable; without a value, that of the environment
    #[arg(short, long = "env", value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Working directory
    #[arg(short, long, value_name = "DIR")]
    pub workdir: Option<String>,
    /// Command to use in place of the image's entry point; empty for none
    #[arg(long, value_name = "CMD")]
    pub entrypoint: Option<String>,
    /// Network: host or none
    #[arg(long, value_name = "MODE")]
    pub network: Option<Network>,
}

#[derive(Debug, Args)]
pub struct ShellArgs {
    /// Image by its name in the catalogue or the store. IMAGE@STEP is the state after a step of an image of the catalogue,
    /// or before it, when it failed: a number or a part of its title, as a build shows them, or `last` for the last
    /// one that succeeded
    #[arg(value_name = "IMAGE[@STEP]")]
    pub image: String,
    /// Command to run instead of a shell
    #[arg(value_name = "CMD", last = true)]
    pub command: Vec<String>,
    /// The state before the step, although it succeeded
    #[arg(long)]
    pub before: bool,
    /// Show the steps of the image, and which of them are in the store
    #[arg(long, conflicts_with_all = ["command", "before"])]
    pub list: bool,
    /// User to run as [default: that of the image or step]
    #[arg(short, long, value_name = "USER[:GROUP]")]
    pub user: Option<String>,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub surroundings: Surroundings,
}
