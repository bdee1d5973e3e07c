//! The typed build graph: nodes and edges, selection, keys and the plan. Knows no engine's inside.

pub mod assemble;
pub mod draw;
pub mod key;
pub mod node;
pub mod plan;
pub mod select;
