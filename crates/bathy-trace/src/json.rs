//! JSON, without building the document: as tokens of a stream, or with a cursor over what is in memory.

pub(crate) mod cursor;
mod escapes;
pub(crate) mod lexer;
