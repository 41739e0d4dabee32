//! A Ceph client: the few functions of librados and librbd that the programs here call.
//!
//! The libraries are those of the machine and are loaded when a cluster is connected ([`Cluster::connect`]), so that one
//! build serves Ceph 16 to 20 and everything else works without Ceph. A library or a function that is missing is an
//! [`Error`] that names it.
//!
//! [`Cluster`] → [`Pool`] → [`Image`], each of which keeps the one before it. Reads, writes and flushes of an image do
//! not wait: an [`Operation`] owns the memory that is read into or written from, is given to the library, and comes
//! back by its own [`Operation::completed`] on a thread of the library.
//!
//! Calls that wait (connecting, opening, closing) end by the time limits of librados only where it has some: with OSDs
//! that do not answer, opening and closing an image may wait for ever. Who must not hang makes them on a thread that it
//! can leave behind.

mod cluster;
mod error;
mod functions;
mod image;
mod layout;
mod library;

pub use cluster::{Cluster, ClusterOptions, Pool};
pub use error::Error;
pub use image::{Access, Image, Operation};
pub use layout::Layout;
