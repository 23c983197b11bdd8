//! What must hold of arrays, whether they come from memory or from a file.
use super::super::flaw::Flaw;
use crate::{Dataset, Labels};

/// Longer names than this are a slip.
const LONGEST_NAME: usize = 200;

/// Refuses names that cannot be told apart on a screen.
pub(super) fn check_name(name: &str) -> Result<(), Flaw> {
    let problem = match name {
        "" => "has no name",
        name if name.chars().count() > LONGEST_NAME => "has a name of more than 200 characters",
        name if name.chars().any(char::is_control) => "has line breaks or other control characters in its name",
        name if name.trim() != name => "has a name that begins or ends with a space",
        _ => return Ok(()),
    };
    Err(Flaw::new(problem, "give the client a plain name, such as `client-07`"))
}

/// Refuses tokens whose next ones end elsewhere than they do: 0 is padding, and a token 0 would silently not be learned.
pub(super) fn check_padding(tokens: &[u8], next: &[u8], length: usize) -> Result<(), Flaw> {
    let is_padding = |token: &u8| *token == 0;
    if let Some(at) = tokens.iter().zip(next).position(|(token, next)| is_padding(token) != is_padding(next)) {
        let problem = format!(
            "in sample {}, position {}, one of `x` and `y` is 0 (padding) and the other is not",
            at / length,
            at % length
        );
        return Err(Flaw::new(problem, "number tokens from 1, and pad both where the sequence has ended: `y[x == 0] = 0`"));
    }
    match tokens.chunks_exact(length).position(|sequence| sequence.iter().all(is_padding)) {
        None => Ok(()),
        Some(sample) => Err(Flaw::new(format!("sample {sample} is nothing but 0 (padding)"), "leave it out")),
    }
}

/// Refuses clients without samples to learn from, test samples that only some have, and classes that leave nothing to predict.
pub(super) fn check_whole(dataset: &Dataset) -> Result<(), Flaw> {
    let start = dataset.test_start.unwrap_or(dataset.len());
    if start == 0 {
        return Err(Flaw::new("has test samples and none to learn from", "give `train` too"));
    }
    if let Some(owners) = &dataset.owners {
        let without = |of: &[u32]| {
            let mut seen = vec![false; owners.names.len()];
            of.iter().for_each(|&owner| seen[owner as usize] = true);
            seen.iter().position(|seen| !seen).map(|client| &owners.names[client])
        };
        if let Some(client) = without(&owners.of[..start]) {
            return Err(Flaw::new(format!("client `{client}` has no `train` samples"), "give some, or leave the client out"));
        }
        if let Some(client) = without(&owners.of[start..]).filter(|_| dataset.test_start.is_some()) {
            let remedy =
                "give test samples of all clients, or of none: the experiment then splits what each has (`data.split.test`)";
            return Err(Flaw::new(format!("client `{client}` has no `test` samples, and others have"), remedy));
        }
    }
    match &dataset.labels {
        Labels::Classes { names, .. } if names.len() < 2 => Err(Flaw::new(
            format!("all samples have the class `{}`: there is nothing to predict", names.concat()),
            "give samples of two classes or more",
        )),
        _ => Ok(()),
    }
}
