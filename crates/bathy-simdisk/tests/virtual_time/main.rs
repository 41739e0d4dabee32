//! The models under virtual time: against arithmetic, and with random loads.

mod arithmetic;
mod flash;
mod host;
mod properties;
