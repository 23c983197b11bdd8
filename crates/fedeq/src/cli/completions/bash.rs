//! What bash needs to complete `key=value`: the script of `clap_complete` passes on the words as bash splits them, at `=` and `:` too.
use std::ffi::OsString;
use std::io::{Result, Write};
use std::path::Path;

use clap::Command;
use clap_complete::env::{Bash, EnvCompleter};

const SCRIPT: &str = include_str!("bash.sh");

/// Asks with whole words, and strips from the replies what stands before the part that bash replaces.
#[derive(Debug)]
pub(super) struct WholeWordsBash;

impl EnvCompleter for WholeWordsBash {
    fn name(&self) -> &'static str {
        Bash.name()
    }

    fn is(&self, name: &str) -> bool {
        Bash.is(name)
    }

    fn write_registration(&self, variable: &str, _: &str, _: &str, completer: &str, out: &mut dyn Write) -> Result<()> {
        let script = SCRIPT.replace("VARIABLE", variable).replace("COMPLETER", completer);
        out.write_all(script.as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut Command,
        words: Vec<OsString>,
        here: Option<&Path>,
        out: &mut dyn Write,
    ) -> Result<()> {
        Bash.write_complete(command, words, here, out)
    }
}
