//! The `fedeq` command.
use std::process::ExitCode;

use fedeq_memory::Counting;

/// So that runs can tell what memory their clients take.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    fedeq_memory::keep();
    fedeq::cli::main(std::env::args_os())
}
