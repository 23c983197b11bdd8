//! What is kept of one federation.
use std::fs;
use std::path::{Path, PathBuf};

use fedeq_core::{fingerprint, write_atomically};
use serde::{Deserialize, Serialize};

use super::parcel::{Parcel, read, write};
use crate::object::Id;
use crate::{Error, Result};

/// A federation's folder.
pub(crate) struct Shelf {
    folder: PathBuf,
    federation: String,
}

/// A question, by the id of its message and by that of what it says: a server that was restarted asks the same under another id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) message: &'a str,
    pub(crate) content: &'a str,
}

/// An answer that was given before.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Given {
    /// To this very message: it is sent again as it is.
    Same(Parcel),
    /// To another message that said the same: what it says is said again.
    Alike(Parcel),
}

/// What is true of a federation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    federation: String,
    /// The file of the state, and its fingerprint in its name; nothing before the first change.
    state: Option<String>,
    /// Questions and their answers, the latest last.
    answered: Vec<Answered>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answered {
    question: Id,
    content: Id,
    reply: Id,
}

/// Answers that are kept for repeated questions. Each may hold a whole model, and devices have little room.
const KEPT: usize = 4;
const MANIFEST: &str = "manifest.json";
const LATEST: &str = "latest";

impl Shelf {
    /// The folder of a federation below another. Names come from outside: it is called by the name's hash.
    pub(super) fn of(root: &Path, federation: &str) -> Self {
        Self { folder: root.join(fingerprint(federation.as_bytes())), federation: federation.into() }
    }

    /// All federations in a folder, by their names.
    pub(super) fn all(root: &Path) -> Result<Vec<Self>> {
        let entries = fs::read_dir(root).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.join(MANIFEST).exists()).collect();
        folders.sort();
        let named = |folder: PathBuf| Ok(Self { federation: read_manifest(&folder.join(MANIFEST))?.federation, folder });
        folders.into_iter().map(named).collect()
    }

    /// The federation's name.
    pub(crate) fn federation(&self) -> &str {
        &self.federation
    }

    /// The state; nothing before the first change. A state that should be there and is not, or is damaged, is an error.
    pub(crate) fn state(&self) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.manifest()?.state else { return Ok(None) };
        let path = self.folder.join(&file);
        let bytes = fs::read(&path).map_err(Error::file(&path, "read the model and the dual of this node"))?;
        if file != state_name(&bytes) {
            return Err(Error::damaged(&path, "the model and the dual of this node are not what was written"));
        }
        Ok(Some(bytes))
    }

    /// The answer that was given to a question, if it was.
    pub(crate) fn answer(&self, question: Question<'_>) -> Result<Option<Given>> {
        let answered = self.manifest()?.answered;
        let reply = |answered: &Answered| read(&self.folder.join(reply_name(&answered.reply)));
        if let Some(same) = answered.iter().find(|answered| answered.question == question.message) {
            return reply(same).map(Given::Same).map(Some);
        }
        let alike = answered.iter().rfind(|answered| answered.content == question.content);
        alike.map(|alike| reply(alike).map(Given::Alike)).transpose()
    }

    /// Makes an answer, and the state after it if it changed, true at once.
    pub(crate) fn commit(&self, question: Question<'_>, reply: &Parcel, state: Option<&[u8]>) -> Result<()> {
        let mut after = self.begun()?;
        if let Some(state) = state {
            let name = state_name(state);
            write_atomically(&self.folder.join(&name), state)?;
            after.state = Some(name);
        }
        write(&self.folder.join(reply_name(&reply.id)), reply)?;
        let Question { message, content } = question;
        // One that is repeated again and again must not push out all others.
        after.answered.retain(|answered| answered.content != content);
        after.answered.push(Answered { question: message.into(), content: content.into(), reply: reply.id.clone() });
        after.answered.drain(..after.answered.len().saturating_sub(KEPT));
        write_atomically(&self.folder.join(MANIFEST), &to_json(&after))?;
        self.remove_all_but(&after);
        Ok(())
    }

    /// The last question that was answered: the experiment, and the shared part as it was last heard of.
    pub(crate) fn latest(&self) -> Result<Option<Parcel>> {
        let path = self.folder.join(LATEST);
        path.exists().then(|| read(&path)).transpose()
    }

    /// Makes the file of a question the latest.
    pub(super) fn keep_latest(&self, question: &Path) -> Result<()> {
        fs::rename(question, self.folder.join(LATEST)).map_err(Error::file(question, "move it"))
    }

    /// What the manifest says now: readers hold no lock, and see by it whether something was committed meanwhile.
    pub(super) fn version(&self) -> Result<Vec<u8>> {
        Ok(to_json(&self.manifest()?))
    }

    /// The manifest, which is made before anything it may name: files without one are what is left of a state, not a beginning.
    fn begun(&self) -> Result<Manifest> {
        let manifest = self.manifest()?;
        let path = self.folder.join(MANIFEST);
        if !path.exists() {
            fs::create_dir_all(&self.folder).map_err(Error::file(&self.folder, "create it"))?;
            write_atomically(&path, &to_json(&manifest))?;
        }
        Ok(manifest)
    }

    fn manifest(&self) -> Result<Manifest> {
        let path = self.folder.join(MANIFEST);
        if path.exists() {
            return read_manifest(&path);
        }
        match self.names().iter().find(|name| is_kept(name) || *name == LATEST) {
            Some(_) => Err(Error::damaged(&path, "it is missing, and with it the model and the dual of this node")),
            None => Ok(Manifest { federation: self.federation.clone(), ..Manifest::default() }),
        }
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Removes states and answers that the manifest does not name, also those of a commit that a power cut ended. One that cannot be removed does
    /// no harm.
    fn remove_all_but(&self, manifest: &Manifest) {
        let named = |name: &str| {
            manifest.state.as_deref() == Some(name)
                || manifest.answered.iter().any(|answered| reply_name(&answered.reply) == name)
        };
        for name in self.names().iter().filter(|name| is_kept(name) && !named(name)) {
            let _ = fs::remove_file(self.folder.join(name));
        }
    }
}

/// Whether a file is a state or an answer.
fn is_kept(name: &str) -> bool {
    name.starts_with("state-") || name.starts_with("reply-")
}

fn state_name(bytes: &[u8]) -> String {
    format!("state-{}", fingerprint(bytes))
}

fn reply_name(id: &str) -> String {
    format!("reply-{id}")
}

fn to_json(manifest: &Manifest) -> Vec<u8> {
    serde_json::to_vec_pretty(manifest).expect("plain values can be written to memory")
}

fn read_manifest(path: &Path) -> Result<Manifest> {
    let bytes = fs::read(path).map_err(Error::file(path, "read it"))?;
    serde_json::from_slice(&bytes).map_err(|error| Error::damaged(path, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn parcel(id: &str) -> Parcel {
        Parcel { run_id: 1, id: id.into(), objects: vec![id.as_bytes().to_vec()] }
    }

    fn question(number: u32) -> [String; 2] {
        [format!("q{number}"), format!("c{number}")]
    }

    fn asked([message, content]: &[String; 2]) -> Question<'_> {
        Question { message, content }
    }

    /// A federation in which question `n` was answered by `r<n>`, each leaving the state `<n>`, up to a number.
    fn shelf(last: u32) -> (TempDir, Shelf) {
        let folder = tempfile::tempdir().expect("a folder");
        let shelf = Shelf::of(folder.path(), "f");
        (1..=last).for_each(|number| commit(&shelf, number));
        (folder, shelf)
    }

    fn commit(shelf: &Shelf, number: u32) {
        let state = number.to_string();
        shelf.commit(asked(&question(number)), &parcel(&format!("r{number}")), Some(state.as_bytes())).expect("kept");
    }

    fn state(shelf: &Shelf) -> Option<String> {
        shelf.state().expect("readable").map(|bytes| String::from_utf8(bytes).expect("text"))
    }

    #[test]
    fn state_and_answer_are_there_again_after_a_restart() {
        let (folder, shelf) = shelf(1);
        shelf.commit(asked(&question(2)), &parcel("r2"), None).expect("kept");
        let again = Shelf::of(folder.path(), "f");
        assert_eq!(state(&again).as_deref(), Some("1"));
        assert_eq!(again.answer(asked(&question(1))).expect("there"), Some(Given::Same(parcel("r1"))));
        assert_eq!(again.answer(asked(&question(3))).expect("never asked"), None);
        assert_eq!(Shelf::of(folder.path(), "other").state().expect("nothing yet"), None);
    }

    #[test]
    fn who_asks_the_same_in_another_message_gets_the_same_answer() {
        let (_folder, shelf) = shelf(2);
        let alike = Question { message: "q7", content: "c1" };
        assert_eq!(shelf.answer(alike).expect("there"), Some(Given::Alike(parcel("r1"))));
    }

    #[test]
    fn a_question_that_is_repeated_pushes_no_other_out() {
        let (_folder, shelf) = shelf(2);
        for number in 10..30 {
            let (message, reply) = (format!("q{number}"), parcel(&format!("r{number}")));
            shelf.commit(Question { message: &message, content: "c2" }, &reply, None).expect("kept");
        }
        assert_eq!(shelf.answer(asked(&question(1))).expect("there"), Some(Given::Same(parcel("r1"))));
        let latest = Question { message: "q29", content: "c2" };
        assert_eq!(shelf.answer(latest).expect("there"), Some(Given::Same(parcel("r29"))));
    }

    #[test]
    fn a_lost_or_damaged_state_is_said_and_not_replaced_by_nothing() {
        let (_folder, shelf) = shelf(1);
        let file = shelf.folder.join(state_name(b"1"));
        fs::write(&file, b"two").expect("damaged");
        assert!(shelf.state().expect_err("damaged").to_string().contains("not what was written"));
        fs::remove_file(&file).expect("removed");
        assert!(shelf.state().expect_err("lost").to_string().contains("the model and the dual"));
    }

    #[test]
    fn a_lost_or_damaged_manifest_is_said_and_not_replaced_by_nothing() {
        let (_folder, shelf) = shelf(1);
        let file = shelf.folder.join(MANIFEST);
        fs::write(&file, b"{}").expect("damaged");
        assert!(shelf.state().is_err());
        fs::remove_file(&file).expect("removed");
        assert!(shelf.state().expect_err("lost").to_string().contains("it is missing"));
        assert!(shelf.answer(asked(&question(1))).is_err());
    }

    #[test]
    fn old_states_and_answers_do_not_pile_up() {
        let (_folder, shelf) = shelf(20);
        assert_eq!(shelf.names().len(), KEPT + 2, "answers, one state and the manifest");
    }

    /// What a commit writes, in its order.
    fn written(number: u32) -> [String; 3] {
        [state_name(number.to_string().as_bytes()), reply_name(&format!("r{number}")), MANIFEST.into()]
    }

    #[test]
    fn a_commit_that_is_cut_anywhere_has_happened_or_has_not() {
        let (_folder, after) = shelf(2);
        for steps in 0..=3 {
            let (_folder, cut) = shelf(1);
            for (step, name) in written(2).iter().enumerate().take(steps + 1) {
                let bytes = fs::read(after.folder.join(name)).expect("written");
                // The step that was cut has left a part of a file, under another name.
                let (name, bytes) = if step < steps {
                    (name.clone(), &bytes[..])
                } else {
                    (format!("{name}.partial"), &bytes[..bytes.len() / 2])
                };
                fs::write(cut.folder.join(name), bytes).expect("written");
            }
            let has_happened = steps == 3;
            assert_eq!(state(&cut).as_deref(), Some(if has_happened { "2" } else { "1" }), "{steps}");
            let answer = cut.answer(asked(&question(2))).expect("readable");
            assert_eq!(answer, has_happened.then(|| Given::Same(parcel("r2"))), "{steps}");
            commit(&cut, 3);
            assert_eq!(state(&cut).as_deref(), Some("3"), "it goes on");
        }
    }

    #[test]
    fn a_first_commit_that_is_cut_anywhere_has_not_happened() {
        let (_folder, after) = shelf(1);
        for steps in 0..3 {
            let folder = tempfile::tempdir().expect("a folder");
            let cut = Shelf::of(folder.path(), "f");
            cut.begun().expect("a manifest");
            for name in &written(1)[..steps] {
                fs::copy(after.folder.join(name), cut.folder.join(name)).expect("copied");
            }
            assert_eq!(state(&cut), None, "{steps}");
            commit(&cut, 1);
            assert_eq!(state(&cut).as_deref(), Some("1"));
        }
    }
}
