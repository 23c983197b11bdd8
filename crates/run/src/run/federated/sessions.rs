//! Sessions of secure aggregation on disk, until the server's state is.
//!
//! Clients mask what they trained once. A server that was killed in the middle of a session must therefore ask for the very same again, of the same clients: what came of every step that is
//! over is kept, and what follows from it is said again, byte by byte.
use std::fs;
use std::path::{Path, PathBuf};

use fedeq_core::{ClientTask, Dropped, Error, Reply, Request, Result, SecureMean, SecureRounds, SecureStep, write_atomically};
use serde::{Deserialize, Serialize};

use super::super::files::{read_json, write_json};
use super::{Outgoing, ReceivedReply, Remote};

/// The sessions of a federation.
pub(super) struct Sessions {
    pub(super) rounds: SecureRounds,
    pub(super) federation: String,
    pub(super) folder: PathBuf,
}

/// What the file of a session says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Session {
    round: u64,
    attempt: u32,
    clients: Vec<usize>,
    /// How it failed, if it did.
    failed: Option<Failure>,
}

/// How a session failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Failure {
    /// Before clients were asked for masked vectors: it can be begun again.
    BeforeMasks,
    /// Afterwards: what clients trained in this round is lost.
    AfterMasks,
}

/// A reply of a step that is over, by client.
type StepReply = std::result::Result<Vec<u8>, Dropped>;

impl Sessions {
    fn file(&self) -> PathBuf {
        self.folder.join("session.json")
    }

    /// The session of a round: the one that was begun, or a new one with these clients.
    fn open(&self, round: u64, clients: &[usize]) -> Result<Session> {
        let known: Option<Session> = self.file().is_file().then(|| read_json(&self.file())).transpose()?;
        let session = match known.filter(|known| known.round == round) {
            Some(known) if known.failed != Some(Failure::BeforeMasks) => return Ok(known),
            Some(known) => Session { round, attempt: known.attempt + 1, clients: clients.to_vec(), failed: None },
            None => Session { round, attempt: 0, clients: clients.to_vec(), failed: None },
        };
        self.clear()?;
        fs::create_dir_all(&self.folder).map_err(Error::io(&self.folder, "create it"))?;
        write_json(&self.file(), &session)?;
        Ok(session)
    }

    fn fail(&self, session: &Session) -> Result<()> {
        let failed = if self.step(SecureStep::Masked).exists() { Failure::AfterMasks } else { Failure::BeforeMasks };
        write_json(&self.file(), &Session { failed: Some(failed), ..session.clone() })
    }

    /// A checkpoint is on disk.
    pub(super) fn clear(&self) -> Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(&self.folder, "remove it")(error)),
            _ => Ok(()),
        }
    }

    /// Where the replies to a step are, once it is over or, of masked vectors, once it has begun.
    fn step(&self, step: SecureStep) -> PathBuf {
        self.folder.join(format!("{step:?}").to_lowercase())
    }

    /// What came of a step, if it is over.
    fn replies(&self, step: SecureStep, clients: impl Iterator<Item = usize>) -> Result<Option<Vec<StepReply>>> {
        let folder = self.step(step);
        if !folder.join("over").is_file() {
            return Ok(None);
        }
        let read = |path: &Path| fs::read(path).map_err(Error::io(path, "read it"));
        let kept = |client: usize| {
            let dropped = folder.join(format!("{client:06}.dropped"));
            if dropped.is_file() {
                return Ok(Err(Dropped::new(client, &String::from_utf8_lossy(&read(&dropped)?))));
            }
            read(&folder.join(format!("{client:06}"))).map(Ok)
        };
        clients.map(kept).collect::<Result<Vec<_>>>().map(Some)
    }

    /// A step begins. From the third on, a session cannot be begun again.
    fn begin(&self, step: SecureStep) -> Result<()> {
        let folder = self.step(step);
        fs::create_dir_all(&folder).map_err(Error::io(&folder, "create it"))
    }

    /// A step is over.
    fn keep(&self, step: SecureStep, clients: impl Iterator<Item = usize>, replies: &[StepReply]) -> Result<()> {
        let folder = self.step(step);
        for (client, kept) in clients.zip(replies) {
            match kept {
                Ok(bytes) => write_atomically(&folder.join(format!("{client:06}")), bytes)?,
                Err(dropped) => write_atomically(&folder.join(format!("{client:06}.dropped")), dropped.reason.as_bytes())?,
            }
        }
        write_atomically(&folder.join("over"), b"")
    }
}

impl Remote<'_> {
    /// The mean of what clients trained, by the protocol.
    pub(super) fn summed(&mut self, request: &Request, clients: &[usize]) -> Result<Option<SecureMean>> {
        let Some(sessions) = self.sessions.take() else { return Ok(None) };
        let mean = self.session(&sessions, request, clients);
        self.sessions = Some(sessions);
        mean.map(Some)
    }

    fn session(&mut self, sessions: &Sessions, request: &Request, clients: &[usize]) -> Result<SecureMean> {
        let session = sessions.open(request.round, clients)?;
        if session.failed.is_some() {
            let mut without_replies = SecureMean::default();
            let reason = "the sum of this round could not be had after vectors were masked: the round is left out";
            without_replies.dropped = clients.iter().map(|client| Dropped::new(*client, reason)).collect();
            return Ok(without_replies);
        }
        let Sessions { rounds, federation, .. } = sessions;
        let mut carry = |step: SecureStep, messages: &[(usize, Vec<u8>)]| self.carry(sessions, step, messages, request);
        let mean = rounds.sum(federation, session.round, session.attempt, &session.clients, &request.weights, &mut carry);
        let mean = mean.and_then(|mut mean| {
            let late = clients.iter().filter(|client| !session.clients.contains(client));
            mean.dropped.extend(late.map(|client| Dropped::new(*client, "the session of this round had begun without it")));
            let missing: Vec<Dropped> =
                mean.dropped.iter().filter(|dropped| !mean.survivors.contains(&dropped.client)).cloned().collect();
            let what = format!("are in the sum of round {}", request.round + 1);
            self.acceptance.require_quorum(&what, mean.survivors.len(), &missing).map(|()| mean)
        });
        if let Err(Error::Quorum { .. }) = &mean {
            sessions.fail(&session)?;
        }
        mean
    }

    /// Carries the messages of a step, or gives what came of it before.
    fn carry(
        &mut self,
        sessions: &Sessions,
        step: SecureStep,
        messages: &[(usize, Vec<u8>)],
        request: &Request,
    ) -> Result<Vec<StepReply>> {
        let clients = || messages.iter().map(|(client, _)| *client);
        let replies = match sessions.replies(step, clients())? {
            Some(replies) => replies,
            None => {
                sessions.begin(step)?;
                let outgoing: Vec<Outgoing<'_>> = messages
                    .iter()
                    .map(|(client, message)| Outgoing { client: *client, request, payload: Some(message) })
                    .collect();
                self.context.progress.asked(ClientTask::Aggregate, &clients().collect::<Vec<_>>());
                let received = self.link.exchange(&outgoing, &self.context)?;
                let replies: Vec<StepReply> = clients()
                    .zip(received)
                    .map(|(client, received)| received.and_then(|reply| reply_of(client, reply)))
                    .collect();
                sessions.keep(step, clients(), &replies)?;
                replies
            }
        };
        // What begins a session says nothing that is not in the experiment, but for numbers.
        if step != SecureStep::Keys {
            self.traffic.down += messages.iter().map(|(_, message)| message.len() as u64).sum::<u64>();
        }
        self.traffic.up += replies.iter().flatten().map(|kept| kept.len() as u64).sum::<u64>();
        Ok(replies)
    }
}

/// The message of the protocol in a reply.
fn reply_of(client: usize, ReceivedReply { header, payload, .. }: ReceivedReply) -> StepReply {
    let problem = |error: Error| Dropped::new(client, &error.to_string());
    match Reply::from_compressed(&header, payload.unwrap_or_default()).map_err(problem)? {
        Reply::Aggregation(message) => Ok(message),
        _ => Err(Dropped::new(client, "it was asked to `aggregate` and replied with something else")),
    }
}

#[cfg(test)]
mod tests {
    use fedeq_core::{FedEq, Plan, SecureAggregation};

    use super::*;

    #[test]
    fn a_session_is_continued_begun_again_or_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("secure");
        let plan = Plan { secure_aggregation: Some(SecureAggregation::default()), ..Plan::default() };
        let rounds = plan.secure_rounds(&FedEq::default(), 30).expect("sound").expect("secure");
        let sessions = Sessions { rounds, federation: "f".into(), folder };
        let opened = |clients: &[usize]| sessions.open(7, clients).expect("opened");
        let first = opened(&[0, 1, 2]);
        assert_eq!((first.attempt, opened(&[0, 1])), (0, first.clone()), "continued with the same clients");
        sessions.begin(SecureStep::Keys).expect("begun");
        assert_eq!(sessions.replies(SecureStep::Keys, [0, 1].into_iter()).expect("read"), None);
        let replies = [Ok(vec![1, 2]), Err(Dropped::new(1, "no reply"))];
        sessions.keep(SecureStep::Keys, [0, 1].into_iter(), &replies).expect("kept");
        assert_eq!(sessions.replies(SecureStep::Keys, [0, 1].into_iter()).expect("read").as_deref(), Some(&replies[..]));
        sessions.fail(&first).expect("failed");
        let second = opened(&[0, 1]);
        assert_eq!((second.attempt, second.clients.len()), (1, 2));
        assert_eq!(sessions.replies(SecureStep::Keys, [0].into_iter()).expect("read"), None, "nothing is left of the first");
        sessions.begin(SecureStep::Masked).expect("begun");
        sessions.fail(&second).expect("failed");
        assert_eq!(opened(&[0, 1]).failed, Some(Failure::AfterMasks));
        assert_eq!(
            sessions.open(8, &[0]).expect("the next round"),
            Session { round: 8, attempt: 0, clients: vec![0], failed: None }
        );
    }
}
