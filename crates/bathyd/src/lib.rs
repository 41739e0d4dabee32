//! The daemon of the cache: a directory is cached in place.
//!
//! * `Directory` is the front end: a FUSE file system that serves the directory over which it is mounted.
//! * `FileCache` is what it asks for the bytes of files; `EngineCache` is the one over `bathy-cache`.
//! * [`daemon`] mounts, tidies, answers questions on a socket, and stops.
//!
//! `README.md` of this crate says how it is run, and argues what is not obvious.

mod attachment;
mod attributes;
mod cache;
pub mod config;
mod counts;
mod credentials;
pub mod daemon;
mod device;
mod directory;
mod engine_cache;
mod handles;
mod identity;
mod inodes;
mod paths;
mod reports;
mod service;
mod session;
mod status;
