//! Replies on disk until the server's state is.
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use fedeq_core::{
    Error, Observer, Request, Result, Weights, decode_parts, encode_parts, fingerprint, is_framed, read_frame, write_atomically,
    write_frame,
};

use super::{ReceivedReply, Remote};

/// Replies since the last checkpoint, by request. A node repeats its last few replies; a client that is asked many times before the next checkpoint would
/// have forgotten the first, and the server could not come back to where it was.
pub(super) struct ReplyLog {
    pub(super) folder: PathBuf,
}

impl ReplyLog {
    pub(super) fn key(client: usize, request: &Request) -> Result<String> {
        Ok(format!("{client:06}-{}", fingerprint(&request.encode()?)))
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.safetensors"))
    }

    /// One that is damaged is asked for again.
    pub(super) fn read(&self, key: &str) -> Option<ReceivedReply> {
        let bytes = fs::read(self.path(key)).ok()?;
        if is_framed(&bytes) {
            let (header, body) = read_frame(&bytes).ok()?;
            return Some(ReceivedReply { header: header.into(), weights: Weights::default(), payload: Some(body.to_vec()) });
        }
        let (header, weights) = decode_parts(&bytes).ok()?;
        Some(ReceivedReply { header, weights, payload: None })
    }

    pub(super) fn write(&self, key: &str, reply: &ReceivedReply) -> Result<()> {
        let path = self.path(key);
        if path.exists() {
            return Ok(());
        }
        fs::create_dir_all(&self.folder).map_err(Error::io(&self.folder, "create it"))?;
        let bytes = match &reply.payload {
            Some(payload) => write_frame(&reply.header, payload),
            None => encode_parts(reply.header.clone(), &reply.weights)?,
        };
        write_atomically(&path, &bytes)
    }

    /// Removes all of them: there is a checkpoint after them.
    fn clear(&self) -> Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(&self.folder, "remove it")(error)),
            _ => Ok(()),
        }
    }
}

/// Removes what is needed no longer when a checkpoint has been written.
pub(super) struct Cleaner;

impl Observer<Remote<'_>> for Cleaner {
    fn observe(&mut self, event: &fedeq_core::Event<'_>, transport: &mut Remote<'_>) -> Result<ControlFlow<()>> {
        if let fedeq_core::Event::Settled { .. } = event {
            transport.replies.as_ref().map_or(Ok(()), ReplyLog::clear)?;
            transport.models.as_ref().map_or(Ok(()), |models| models.settle())?;
            transport.sessions.as_ref().map_or(Ok(()), |sessions| sessions.clear())?;
        }
        Ok(ControlFlow::Continue(()))
    }
}
