//! ssh-agents for `RUN --mount=type=ssh`: the host's own, or one that is started with keys from files and ends with the
//! engine. A step never gets to the agent's socket itself: it gets one of its own ([`forward`]).

mod forward;
mod keys;

pub use forward::Forward;
pub use keys::KeyAgent;
