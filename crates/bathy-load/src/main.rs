//! The program: `bathy-load --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    bathy_load::program::main(std::env::args().skip(1)).into()
}
