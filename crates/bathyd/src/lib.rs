//! The daemon of the cache: a directory is cached in place.
//!
//! * `Directory` is the front end: a FUSE file system that serves the directory over which it is mounted.
//! * `FileCache` is what it asks for the bytes of files; `EngineCache` is the one over `bathy-cache`.
//! * [`daemon`] mounts, tidies, answers questions on a socket, and stops.
//!
//! `README.md` of this crate says how it is run, and argues what is not obvious.

mod apart;
mod attachment;
mod attributes;
mod backing;
mod cache;
mod cache_size;
pub mod config;
mod counted_device;
mod counts;
mod credentials;
pub mod daemon;
mod descriptors;
mod device;
mod device_identity;
mod device_notes;
mod devices;
mod devices_command;
mod directory;
mod encryption;
mod engine_cache;
mod failure;
mod handles;
mod identity;
mod inodes;
mod panics;
mod paths;
mod plaintext;
mod random;
mod reports;
mod service;
mod session;
mod starts;
mod state_files;
mod status;
mod systemd;
mod tree;
