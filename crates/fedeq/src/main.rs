//! The `fedeq` command.
use std::process::ExitCode;

fn main() -> ExitCode {
    fedeq::cli::main(std::env::args_os())
}
