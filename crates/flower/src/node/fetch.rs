//! Receiving: from the SuperLink into the inbox.
use std::time::Duration;

use super::refusal::Rejection;
use super::{Node, Notice, require_not_expired};
use crate::message::Message;
use crate::object::{Bundle, ids_of, is_id};
use crate::store::{Announcement, StoredMessage};
use crate::wire::{Failure, MessageMetadata, ObjectTree};
use crate::{Error, Result};

/// No network has as many arrays.
const MOST_OBJECTS: usize = 20_000;
/// How long the node waits for the objects of a message to reach the SuperLink.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);

impl Node<'_> {
    /// Puts new requests into the inbox. What fails on its way is tried again the next time.
    pub(super) fn fetch(&mut self, id: u64) -> Result<()> {
        let pulled = self.store_announcements(id);
        for request in self.store.inbox().announced()? {
            self.receive(id, &request)?;
        }
        pulled
    }

    /// Stores which messages the SuperLink has for this node: it lists each of them only once.
    fn store_announcements(&mut self, id: u64) -> Result<()> {
        let pulled = self.connection.pull_messages(id)?;
        for (message, tree) in pulled.messages.into_iter().zip(pulled.trees) {
            let request = tree.object_id.clone();
            let head = message.metadata.map(|head| MessageMetadata { message_id: request.clone(), ..head });
            if !is_id(&request) {
                (self.notify)(Notice::Refused(Error::object(&request, "this is not an object id").to_string()));
            } else if self.store.inbox().count()? >= self.limits.waiting {
                let problem = format!("{} requests wait already", self.limits.waiting);
                self.tell_refusal(id, head, Error::Limit { problem }.into())?;
            } else {
                self.store.inbox().announce(&request, &Announcement { head, tree: Some(tree) })?;
            }
        }
        Ok(())
    }

    /// Receives a request that was announced, or refuses it. One whose objects are not yet at the SuperLink does not block others.
    fn receive(&mut self, id: u64, request: &str) -> Result<()> {
        match self.try_receive(id, request) {
            Err(error) if error.concerns_one_message() => {
                self.refuse(id, request, error.into())?;
                self.store.inbox().remove(request)?;
            }
            Ok(false) => return Ok(()),
            other => other.map(|_| ())?,
        }
        self.store.inbox().remove_announcement(request)
    }

    /// Tells whether the message is complete.
    fn try_receive(&mut self, id: u64, request: &str) -> Result<bool> {
        let inbox = self.store.inbox();
        let Announcement { head: Some(head), tree: Some(tree) } = inbox.announcement(request)? else {
            return Err(Error::object(request, "it has no metadata"));
        };
        require_not_expired(&head)?;
        if !inbox.contains(request) {
            let Some(bundle) = self.pull(id, head.run_id, &tree)? else {
                let is_too_late = inbox.age(request) > ARRIVAL_TIMEOUT;
                return if is_too_late { Err(Error::object(request, "some of its objects never arrived")) } else { Ok(false) };
            };
            // Decoded already here, where the sender is known and can be told that the message is malformed.
            Message::inflate_within(request, &bundle, self.limits.message)?;
            self.require_room(bundle.size())?;
            inbox.add(&StoredMessage::new(head.run_id, request, &bundle))?;
        }
        self.connection.confirm(id, head.run_id, request).map(|()| true)
    }

    /// All objects of a message; nothing while one of them has not arrived at the SuperLink.
    fn pull(&self, id: u64, run_id: u64, tree: &ObjectTree) -> Result<Option<Bundle>> {
        let mut bundle = Bundle::default();
        let mut size = 0;
        for object in ids_of(tree, MOST_OBJECTS)? {
            let Some(bytes) = self.connection.pull_object(id, run_id, &object)? else { return Ok(None) };
            size += bytes.len();
            if size > self.limits.message {
                return Err(Error::TooLarge { most: self.limits.message });
            }
            bundle.receive(object, bytes);
        }
        Ok(Some(bundle))
    }

    /// Refuses what would make the node's folder larger than its owner allows.
    pub(super) fn require_room(&self, bytes: usize) -> Result<()> {
        let most = self.limits.disk;
        if self.store.used().saturating_add(bytes as u64) <= most {
            return Ok(());
        }
        Err(Error::Limit {
            problem: format!("the node's folder would take more than {} MB; `--max-disk` allows more", most >> 20),
        })
    }

    /// Tells the sender that a request is refused.
    fn refuse(&mut self, id: u64, request: &str, rejection: Rejection) -> Result<()> {
        let head = self.store.inbox().announcement(request)?.head;
        self.tell_refusal(id, head, rejection)
    }

    fn tell_refusal(&mut self, id: u64, head: Option<MessageMetadata>, rejection: Rejection) -> Result<()> {
        match head {
            Some(head) => {
                let content = Err(Failure::default());
                let refusal = self.refusal(&Message { head, content }, rejection);
                self.deliver(id, &refusal)
            }
            None => {
                (self.notify)(Notice::Refused(rejection.reason));
                Ok(())
            }
        }
    }
}
