//! The program: see README.md of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    bathy_simdisk::program::main(std::env::args().skip(1)).into()
}
