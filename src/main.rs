use std::env::args_os;

use kollage::engine::embedded::helper;
use kollage::{cli, userns};

fn main() -> std::process::ExitCode {
    // Before anything else: neither of the two helpers may have a second thread.
    helper::main_if_called(args_os()).or_else(|| userns::mapper_if_called(args_os())).unwrap_or_else(cli::main)
}
