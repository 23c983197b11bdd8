//! What a node stores of one federation.
use std::fs;
use std::path::{Path, PathBuf};

use fedeq_core::{fingerprint, write_atomically};
use serde::{Deserialize, Serialize};

use super::message::{StoredMessage, read, write};
use crate::object::Id;
use crate::{Error, Result};

/// The folder of a federation.
pub(crate) struct FederationStore {
    folder: PathBuf,
    federation: String,
}

/// Identifies a request, by the id of its message and by the id of its content: a server that was restarted sends the same content in another message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestKey<'a> {
    pub(crate) message: &'a str,
    pub(crate) content: &'a str,
}

/// A reply that was sent before.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PreviousReply {
    /// To the same message: it is sent again as it is.
    SameMessage(StoredMessage),
    /// To another message with the same content: its content is sent again.
    SameContent(StoredMessage),
}

/// The committed state of a federation; the names of the fields are those of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    federation: String,
    /// The file of the state, named by its fingerprint; nothing before the first commit of one.
    state: Option<String>,
    /// The latest requests and their replies, in order.
    #[serde(rename = "answered")]
    replies: Vec<SentReply>,
    /// The latest evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    evaluated: Option<AnswerCount>,
    /// That training is over, as the server has said, and the work after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished: Option<AnswerCount>,
}

/// After which round something was told, and how often, about different weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerCount {
    round: u64,
    times: u32,
}

/// What is done only so often, or only until training is over: each time a server may choose other weights, and learns something about the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// Training. How often is no matter of this file: a round is trained once.
    Training,
    /// Evaluating models.
    Evaluation,
    /// The same, after a round that has an evaluation only since training is over.
    LastEvaluation,
    /// What there is left to do when training is over.
    End,
}

/// Why work is refused that would tell something about the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// It was done before as often as is allowed, the last time after this round.
    Again(u64),
    /// Training was over after this round.
    Over(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SentReply {
    #[serde(rename = "question")]
    request: Id,
    content: Id,
    reply: Id,
}

/// Replies that are kept for repeated requests. Each may contain a whole model, and devices have little space.
const KEPT_REPLIES: usize = 4;
/// How often models are evaluated after one round, and how often a client finishes in a federation, with different weights. (A server that was killed after it asked may
/// have other weights when it asks again.)
const MOST_TOLD: u32 = 2;
const MANIFEST: &str = "manifest.json";
const LATEST: &str = "latest";

impl FederationStore {
    /// The folder of a federation below `root`. Names come from the server, so the folder is named by the hash of the name.
    pub(super) fn of(root: &Path, federation: &str) -> Self {
        Self { folder: root.join(fingerprint(federation.as_bytes())), federation: federation.into() }
    }

    /// All federations in a folder.
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

    /// The state; nothing before the first commit of one. A state that the manifest names and that is missing or damaged is an error.
    pub(crate) fn state(&self) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.manifest()?.state else { return Ok(None) };
        let path = self.folder.join(&file);
        let bytes = fs::read(&path).map_err(Error::file(&path, "read the model and the dual of this node"))?;
        if file != state_name(&bytes) {
            return Err(Error::damaged(
                &path,
                "the model and the dual of this node are damaged: the file does not have the content that was written",
            ));
        }
        Ok(Some(bytes))
    }

    /// The reply that was sent to a request, if there is one.
    pub(crate) fn reply(&self, request: RequestKey<'_>) -> Result<Option<PreviousReply>> {
        let replies = self.manifest()?.replies;
        let reply = |sent: &SentReply| read(&self.folder.join(reply_name(&sent.reply)));
        if let Some(same) = replies.iter().find(|sent| sent.request == request.message) {
            return reply(same).map(PreviousReply::SameMessage).map(Some);
        }
        let same = replies.iter().rfind(|sent| sent.content == request.content);
        same.map(|same| reply(same).map(PreviousReply::SameContent)).transpose()
    }

    /// Why work after a round is refused, if it is.
    pub(crate) fn denial(&self, telling: Telling, round: u64) -> Result<Option<Denial>> {
        Ok(self.manifest()?.denial(telling, round))
    }

    /// Commits a reply, together with the new state if it changed, and what it tells after which round, if that is counted.
    pub(crate) fn commit(
        &self,
        request: RequestKey<'_>,
        reply: &StoredMessage,
        state: Option<&[u8]>,
        told: Option<(Telling, u64)>,
    ) -> Result<()> {
        let mut after = self.manifest_or_create()?;
        if let Some((telling, round)) = told {
            after.tell(telling, round);
        }
        if let Some(state) = state {
            let name = state_name(state);
            write_atomically(&self.folder.join(&name), state)?;
            after.state = Some(name);
        }
        write(&self.folder.join(reply_name(&reply.id)), reply)?;
        let RequestKey { message, content } = request;
        // A request that is repeated again and again must not displace all others.
        after.replies.retain(|sent| sent.content != content);
        after.replies.push(SentReply { request: message.into(), content: content.into(), reply: reply.id.clone() });
        after.replies.drain(..after.replies.len().saturating_sub(KEPT_REPLIES));
        write_atomically(&self.folder.join(MANIFEST), &to_json(&after))?;
        self.remove_all_but(&after);
        Ok(())
    }

    /// The last request that was replied to: the experiment, and the shared part as it was last received.
    pub(crate) fn latest(&self) -> Result<Option<StoredMessage>> {
        let path = self.folder.join(LATEST);
        path.exists().then(|| read(&path)).transpose()
    }

    /// Moves the file of a request here, as the latest.
    pub(super) fn keep_latest(&self, request: &Path) -> Result<()> {
        fs::rename(request, self.folder.join(LATEST)).map_err(Error::file(request, "move it"))
    }

    /// The current manifest as bytes: readers hold no lock, and compare it to see whether something was committed meanwhile.
    pub(super) fn version(&self) -> Result<Vec<u8>> {
        Ok(to_json(&self.manifest()?))
    }

    /// The manifest, which is written before any file it may name: a folder with states and no manifest has lost it, and is not a new one.
    fn manifest_or_create(&self) -> Result<Manifest> {
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
        match self.names().iter().find(|name| is_state_or_reply(name) || *name == LATEST) {
            Some(_) => Err(Error::damaged(&path, "it is missing, so the model and the dual of this node cannot be used")),
            None => Ok(Manifest { federation: self.federation.clone(), ..Manifest::default() }),
        }
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Removes states and replies that the manifest does not name, also those of an interrupted commit. One that cannot be removed does
    /// no harm.
    fn remove_all_but(&self, manifest: &Manifest) {
        let named = |name: &str| {
            manifest.state.as_deref() == Some(name) || manifest.replies.iter().any(|sent| reply_name(&sent.reply) == name)
        };
        for name in self.names().iter().filter(|name| is_state_or_reply(name) && !named(name)) {
            let _ = fs::remove_file(self.folder.join(name));
        }
    }
}

impl Manifest {
    /// Why work is refused: not after earlier rounds than the latest, not often, and no more of training once the server has said that it is over.
    fn denial(&self, telling: Telling, round: u64) -> Option<Denial> {
        let is_again = |last: &AnswerCount| round < last.round || last.times >= MOST_TOLD;
        let over = self.finished.map(|end| Denial::Over(end.round));
        let again = |last: AnswerCount| Denial::Again(last.round);
        match telling {
            Telling::Training => over,
            Telling::Evaluation | Telling::LastEvaluation => match self.evaluated.filter(|last| round <= last.round) {
                Some(last) => Some(last).filter(is_again).map(again),
                None => over.filter(|_| self.finished.is_some_and(|end| round > end.round)),
            },
            Telling::End => self.finished.filter(is_again).map(again),
        }
    }

    /// Counts what is told. Rounds have evaluations of their own; there is one end, whichever round the server takes for the last.
    fn tell(&mut self, telling: Telling, round: u64) {
        match telling {
            Telling::Training => {}
            Telling::Evaluation | Telling::LastEvaluation => {
                let times = self.evaluated.filter(|last| last.round == round).map_or(0, |last| last.times);
                self.evaluated = Some(AnswerCount { round, times: times + 1 });
            }
            Telling::End => {
                let times = self.finished.map_or(0, |last| last.times);
                self.finished = Some(AnswerCount { round, times: times + 1 });
            }
        }
        if telling == Telling::LastEvaluation {
            self.finished.get_or_insert(AnswerCount { round, times: 0 });
        }
    }
}

/// Whether a file is a state or a reply.
fn is_state_or_reply(name: &str) -> bool {
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
    use super::super::message::stored;
    use super::*;
    use tempfile::TempDir;

    fn request(number: u32) -> [String; 2] {
        [format!("q{number}"), format!("c{number}")]
    }

    fn key([message, content]: &[String; 2]) -> RequestKey<'_> {
        RequestKey { message, content }
    }

    /// A federation in which request `n` had the reply `r<n>` and left the state `<n>`, for all numbers up to `last`.
    fn committed(last: u32) -> (TempDir, FederationStore) {
        let folder = tempfile::tempdir().expect("a folder");
        let store = FederationStore::of(folder.path(), "f");
        (1..=last).for_each(|number| commit(&store, number));
        (folder, store)
    }

    fn commit(store: &FederationStore, number: u32) {
        let state = number.to_string();
        store.commit(key(&request(number)), &stored(&format!("r{number}")), Some(state.as_bytes()), None).expect("stored");
    }

    fn state(store: &FederationStore) -> Option<String> {
        store.state().expect("readable").map(|bytes| String::from_utf8(bytes).expect("text"))
    }

    #[test]
    fn state_and_reply_survive_a_restart() {
        let (folder, store) = committed(1);
        store.commit(key(&request(2)), &stored("r2"), None, Some((Telling::Evaluation, 1))).expect("stored");
        let again = FederationStore::of(folder.path(), "f");
        assert_eq!(state(&again).as_deref(), Some("1"));
        assert_eq!(again.reply(key(&request(1))).expect("there"), Some(PreviousReply::SameMessage(stored("r1"))));
        assert_eq!(again.reply(key(&request(3))).expect("never requested"), None);
        assert_eq!(FederationStore::of(folder.path(), "other").state().expect("nothing yet"), None);
    }

    /// Why something is not told after each of some rounds.
    fn denial<const ROUNDS: usize>(store: &FederationStore, telling: Telling, rounds: [u64; ROUNDS]) -> [Option<Denial>; ROUNDS] {
        rounds.map(|round| store.denial(telling, round).expect("readable"))
    }

    fn tell(store: &FederationStore, number: u32, telling: Telling, round: u64) {
        assert_eq!(denial(store, telling, [round]), [None], "{number}");
        store.commit(key(&request(number)), &stored(&format!("r{number}")), None, Some((telling, round))).expect("stored");
    }

    #[test]
    fn models_are_evaluated_at_most_twice_after_a_round() {
        let (_folder, store) = committed(1);
        (0..MOST_TOLD).for_each(|number| tell(&store, 10 + number, Telling::Evaluation, 5));
        let again = Some(Denial::Again(5));
        assert_eq!(denial(&store, Telling::Evaluation, [4, 5, 6]), [again, again, None]);
        assert_eq!(denial(&store, Telling::Training, [5]), [None], "training continues");
        assert_eq!(denial(&store, Telling::End, [5]), [None], "one does not count for the other");
        commit(&store, 2);
        tell(&store, 9, Telling::Evaluation, 6);
        assert_eq!(denial(&store, Telling::Evaluation, [5, 6, 7]), [Some(Denial::Again(6)), None, None]);
    }

    #[test]
    fn a_client_finishes_at_most_twice_whichever_round_the_server_takes_for_the_last() {
        for second in [5, 6, 900] {
            let (_folder, store) = committed(1);
            tell(&store, 10, Telling::End, 5);
            commit(&store, 2);
            tell(&store, 11, Telling::End, second);
            let again = Some(Denial::Again(second));
            assert_eq!(denial(&store, Telling::End, [4, second, second + 1, 1000]), [again; 4]);
        }
    }

    #[test]
    fn once_the_server_has_said_that_training_is_over_there_is_no_more_of_it() {
        for telling in [Telling::End, Telling::LastEvaluation] {
            let (folder, store) = committed(1);
            tell(&store, 10, Telling::Evaluation, 4);
            tell(&store, 11, telling, 5);
            let store = FederationStore::of(folder.path(), store.federation());
            let over = Some(Denial::Over(5));
            // Updates of asynchronous work are counted by numbers of their own.
            assert_eq!(denial(&store, Telling::Training, [0, 5, 6, 900]), [over; 4]);
            for telling in [Telling::Evaluation, Telling::LastEvaluation] {
                assert_eq!(denial(&store, telling, [5, 6, 900]), [None, over, over]);
            }
            // What is left to do may come before the last evaluation, or after it.
            tell(&store, 12, Telling::End, 5);
        }
    }

    #[test]
    fn an_evaluation_is_no_work_after_training() {
        let (_folder, store) = committed(1);
        (10..12).for_each(|number| tell(&store, number, Telling::LastEvaluation, 5));
        (12..14).for_each(|number| tell(&store, number, Telling::End, 5));
        let again = [Some(Denial::Again(5))];
        assert_eq!([Telling::LastEvaluation, Telling::End].map(|telling| denial(&store, telling, [5])), [again; 2]);
    }

    #[test]
    fn the_file_format_of_the_manifest_does_not_change() {
        let (_folder, store) = committed(1);
        let state = state_name(b"1");
        let text =
            format!(r#"{{"federation":"f","state":"{state}","answered":[{{"question":"q1","content":"c1","reply":"r1"}}]}}"#);
        let manifest: Manifest = serde_json::from_str(&text).expect("a manifest as earlier versions write it");
        assert_eq!(store.manifest().expect("readable"), manifest);
        assert_eq!(serde_json::to_string(&manifest).expect("plain"), text);
    }

    #[test]
    fn the_same_content_in_another_message_gets_the_same_reply() {
        let (_folder, store) = committed(2);
        let same = RequestKey { message: "q7", content: "c1" };
        assert_eq!(store.reply(same).expect("there"), Some(PreviousReply::SameContent(stored("r1"))));
    }

    #[test]
    fn a_repeated_request_displaces_no_other() {
        let (_folder, store) = committed(2);
        for number in 10..30 {
            let (message, reply) = (format!("q{number}"), stored(&format!("r{number}")));
            store.commit(RequestKey { message: &message, content: "c2" }, &reply, None, None).expect("stored");
        }
        assert_eq!(store.reply(key(&request(1))).expect("there"), Some(PreviousReply::SameMessage(stored("r1"))));
        let latest = RequestKey { message: "q29", content: "c2" };
        assert_eq!(store.reply(latest).expect("there"), Some(PreviousReply::SameMessage(stored("r29"))));
    }

    #[test]
    fn a_lost_or_damaged_state_is_an_error() {
        let (_folder, store) = committed(1);
        let file = store.folder.join(state_name(b"1"));
        fs::write(&file, b"two").expect("damaged");
        assert!(store.state().expect_err("damaged").to_string().contains("are damaged"));
        fs::remove_file(&file).expect("removed");
        assert!(store.state().expect_err("lost").to_string().contains("the model and the dual"));
    }

    #[test]
    fn a_lost_or_damaged_manifest_is_an_error() {
        let (_folder, store) = committed(1);
        let file = store.folder.join(MANIFEST);
        fs::write(&file, b"{}").expect("damaged");
        assert!(store.state().is_err());
        fs::remove_file(&file).expect("removed");
        assert!(store.state().expect_err("lost").to_string().contains("it is missing"));
        assert!(store.reply(key(&request(1))).is_err());
    }

    #[test]
    fn old_states_and_replies_are_removed() {
        let (_folder, store) = committed(20);
        assert_eq!(store.names().len(), KEPT_REPLIES + 2, "replies, one state and the manifest");
    }

    /// What a commit writes, in its order.
    fn written(number: u32) -> [String; 3] {
        [state_name(number.to_string().as_bytes()), reply_name(&format!("r{number}")), MANIFEST.into()]
    }

    #[test]
    fn an_interrupted_commit_took_place_completely_or_not_at_all() {
        let (_folder, after) = committed(2);
        for steps in 0..=3 {
            let (_folder, cut) = committed(1);
            for (step, name) in written(2).iter().enumerate().take(steps + 1) {
                let bytes = fs::read(after.folder.join(name)).expect("written");
                // The interrupted step has left a part of a file, under another name.
                let (name, bytes) = if step < steps {
                    (name.clone(), &bytes[..])
                } else {
                    (format!("{name}.partial"), &bytes[..bytes.len() / 2])
                };
                fs::write(cut.folder.join(name), bytes).expect("written");
            }
            let has_happened = steps == 3;
            assert_eq!(state(&cut).as_deref(), Some(if has_happened { "2" } else { "1" }), "{steps}");
            let reply = cut.reply(key(&request(2))).expect("readable");
            assert_eq!(reply, has_happened.then(|| PreviousReply::SameMessage(stored("r2"))), "{steps}");
            commit(&cut, 3);
            assert_eq!(state(&cut).as_deref(), Some("3"), "later commits succeed");
        }
    }

    #[test]
    fn an_interrupted_first_commit_did_not_take_place() {
        let (_folder, after) = committed(1);
        for steps in 0..3 {
            let folder = tempfile::tempdir().expect("a folder");
            let cut = FederationStore::of(folder.path(), "f");
            cut.manifest_or_create().expect("a manifest");
            for name in &written(1)[..steps] {
                fs::copy(after.folder.join(name), cut.folder.join(name)).expect("copied");
            }
            assert_eq!(state(&cut), None, "{steps}");
            commit(&cut, 1);
            assert_eq!(state(&cut).as_deref(), Some("1"));
        }
    }
}
