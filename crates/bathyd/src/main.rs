//! The program: see README.md of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    bathyd::daemon::main(&arguments).into()
}
