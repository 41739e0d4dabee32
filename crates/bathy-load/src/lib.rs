//! Load whose latency counts from when a request should have started.
//!
//! A closed loop keeps so many requests in flight: when the cluster stalls it stalls too, and what users would have sent
//! meanwhile is missing in its percentiles (coordinated omission). Here the arrivals are a schedule that the cluster
//! cannot delay ([`arrivals`]), and the latency of each request counts from its place in it.
//!
//! [`plan`] says what is asked for, [`requests`] which requests an image gets, [`replay`] which a recorded trace has, [`engine`] sends them: one thread, which
//! waits for the next arrival and never for a completion. [`world`] is what the engine stands on, a clock and a target
//! together, so that tests give it a simulated one; [`null`] completes at once, [`rbd`] is librbd. [`account`] counts, [`verify`] checks data,
//! [`report`] writes it as JSON lines, [`program`] is the command line.

pub mod account;
pub mod arrivals;
pub mod buffers;
pub mod engine;
pub mod null;
pub mod plan;
pub mod program;
pub mod rbd;
pub mod replay;
pub mod report;
pub mod requests;
pub mod verify;
pub mod world;

mod deadline;
mod failure;
mod in_flight;
mod zipf;

pub use failure::Failure;
