//! From the SuperLink into the vault.
use std::time::Duration;

use super::refusal::TurnedDown;
use super::{Node, Notice, require_in_time};
use crate::message::Message;
use crate::object::{Bundle, ids_of, is_id};
use crate::vault::{Announcement, Parcel};
use crate::wire::{Failure, Metadata, ObjectTree};
use crate::{Error, Result};

/// No network has as many arrays.
const MOST_OBJECTS: usize = 20_000;
/// How long objects that are on their way are waited for.
const ARRIVAL: Duration = Duration::from_secs(60);

impl Node<'_> {
    /// Brings new questions into the vault. What does not come through is tried again the next time.
    pub(super) fn fetch(&mut self, id: u64) -> Result<()> {
        let heard = self.hear(id);
        for question in self.vault.inbox().announced()? {
            self.bring(id, &question)?;
        }
        heard
    }

    /// Notes what the SuperLink has to ask: it says so only once.
    fn hear(&mut self, id: u64) -> Result<()> {
        let pulled = self.fleet.pull_messages(id)?;
        for (message, tree) in pulled.messages.into_iter().zip(pulled.trees) {
            let question = tree.object_id.clone();
            if is_id(&question) {
                let head = message.metadata.map(|head| Metadata { message_id: question.clone(), ..head });
                self.vault.inbox().announce(&question, &Announcement { head, tree: Some(tree) })?;
            } else {
                (self.tell)(Notice::Refused(Error::object(&question, "that is no id").to_string()));
            }
        }
        Ok(())
    }

    /// Brings a question that was announced, or turns it down. One whose objects are still on their way holds up no other.
    fn bring(&mut self, id: u64, question: &str) -> Result<()> {
        match self.try_bring(id, question) {
            Err(error) if error.is_about_the_message() => {
                self.turn_down(id, question, error.into())?;
                self.vault.inbox().done(question)?;
            }
            Ok(false) => return Ok(()),
            other => other.map(|_| ())?,
        }
        self.vault.inbox().arrived(question)
    }

    /// Tells whether all of it is here.
    fn try_bring(&mut self, id: u64, question: &str) -> Result<bool> {
        let inbox = self.vault.inbox();
        let Announcement { head: Some(head), tree: Some(tree) } = inbox.announcement(question)? else {
            return Err(Error::object(question, "it has no head"));
        };
        require_in_time(&head)?;
        if !inbox.holds(question) {
            let Some(bundle) = self.pull(id, head.run_id, &tree)? else {
                let is_hopeless = inbox.age(question) > ARRIVAL;
                return if is_hopeless { Err(Error::object(question, "it does not arrive")) } else { Ok(false) };
            };
            // Looked at now, while its head is known: who asked can be told what is wrong with it.
            Message::inflate_within(question, &bundle, self.message_limit)?;
            inbox.receive(&Parcel::of(head.run_id, question, &bundle))?;
        }
        self.fleet.confirm(id, head.run_id, question).map(|()| true)
    }

    /// All objects of a message; nothing while one of them has not arrived at the SuperLink.
    fn pull(&self, id: u64, run_id: u64, tree: &ObjectTree) -> Result<Option<Bundle>> {
        let mut bundle = Bundle::default();
        let mut size = 0;
        for object in ids_of(tree, MOST_OBJECTS)? {
            let Some(bytes) = self.fleet.pull_object(id, run_id, &object)? else { return Ok(None) };
            size += bytes.len();
            if size > self.message_limit {
                return Err(Error::TooLarge { most: self.message_limit });
            }
            bundle.receive(object, bytes);
        }
        Ok(Some(bundle))
    }

    /// Says what is wrong with a question that cannot be read.
    fn turn_down(&mut self, id: u64, question: &str, reason: TurnedDown) -> Result<()> {
        match self.vault.inbox().announcement(question)?.head {
            Some(head) => {
                let nothing = Err(Failure::default());
                let refusal = self.refusal(&Message { head, content: nothing }, reason);
                self.deliver(id, &refusal)
            }
            None => {
                (self.tell)(Notice::Refused(reason.words));
                Ok(())
            }
        }
    }
}
