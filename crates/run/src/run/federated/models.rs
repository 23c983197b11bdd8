//! What the server knows of the models that clients have, where it sends differences.
//!
//! A model is kept as a file for each client and round until a checkpoint follows, so that a server that was killed says the same again in the same round, byte by byte.
//! Of a client that did not reply it is not known what it has: it is sent the whole model the next time.
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use fedeq_core::{
    Codec, Compression, CompressionState, Error, KnownModel, Metadata, Params, ReceivedModel, Request, Result, Weights,
    client_seed, decode_model, encode_model, sending_seed, write_atomically,
};
use fedeq_data::Seed;

/// The models of clients, in a folder.
pub(super) struct SentModels {
    pub(super) folder: PathBuf,
    pub(super) compression: Compression,
    pub(super) codec: Codec,
    /// The first model, which all clients have from the beginning.
    pub(super) first: Weights,
    /// The randomness of all clients.
    pub(super) seed: Seed,
}

/// A request on its way to a client.
pub(super) struct EncodedModel {
    /// What is sent in place of the weights.
    pub(super) body: Vec<u8>,
    /// What the client makes of it.
    pub(super) arrives: Weights,
}

impl SentModels {
    /// What is sent to a client in place of the weights of a request.
    pub(super) fn encode(&self, client: usize, request: &Request) -> Result<EncodedModel> {
        let known = self.known(client, request.round)?;
        let seed = sending_seed(client_seed(self.seed, client), request.round);
        let body = encode_model(&request.weights, self.codec, &known, seed)?;
        let arrives = decode_model(&body, self.codec, &known, &request.weights)?;
        Ok(EncodedModel { body, arrives })
    }

    /// Notes what a client has after a round; nothing where it did not reply.
    pub(super) fn note(&self, client: usize, round: u64, has: Option<&Weights>) -> Result<()> {
        fs::create_dir_all(&self.folder).map_err(Error::io(&self.folder, "create it"))?;
        let bytes = has.map(|weights| weights.packed().to_bytes(&Metadata::new())).transpose()?.unwrap_or_default();
        write_atomically(&self.path(client, round), &bytes)
    }

    /// A checkpoint is on disk: of each client only the last model is needed, and none that was sent too long ago.
    pub(super) fn settle(&self) -> Result<()> {
        let files = self.files()?;
        let newest = files.values().filter_map(|rounds| rounds.last()).max().copied().unwrap_or_default();
        for (client, rounds) in files {
            let Some((&last, earlier)) = rounds.split_last() else { continue };
            for &round in earlier {
                let path = self.path(client, round);
                fs::remove_file(&path).map_err(Error::io(&path, "remove it"))?;
            }
            // The next request that could refer to it comes a round later at the earliest.
            if !self.compression.keeps(last, newest.saturating_add(1)) {
                self.note(client, last, None)?;
            }
        }
        Ok(())
    }

    /// What a client has when a round begins.
    fn known(&self, client: usize, round: u64) -> Result<KnownModel> {
        let files = self.files()?;
        let before = files.get(&client).and_then(|rounds| rounds.iter().rev().find(|known| **known < round));
        let received = match before {
            None => None,
            Some(&round) => match self.read(client, round)? {
                Some(weights) => Some(ReceivedModel { round, weights }),
                None => return Ok(KnownModel::Nothing),
            },
        };
        let state = CompressionState { received, unsent: Params::default() };
        Ok(KnownModel::of(&self.compression, &state, round, || self.first.clone()))
    }

    fn read(&self, client: usize, round: u64) -> Result<Option<Weights>> {
        let path = self.path(client, round);
        let bytes = fs::read(&path).map_err(Error::io(&path, "read it"))?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let (packed, _) = Params::from_bytes(&bytes).map_err(|error| Error::damaged(&path, error.to_string()))?;
        let weights = Weights::unpacked(&packed);
        weights.ensure_like(&self.first).map_err(|error| Error::damaged(&path, error.to_string()))?;
        Ok(Some(weights))
    }

    fn path(&self, client: usize, round: u64) -> PathBuf {
        self.folder.join(format!("{client:06}-{round:012}.safetensors"))
    }

    /// The rounds of each client of which there is a file, in order.
    fn files(&self) -> Result<BTreeMap<usize, Vec<u64>>> {
        let mut files: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(files),
            entries => entries.map_err(Error::io(&self.folder, "read it"))?,
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let numbers = name.strip_suffix(".safetensors").and_then(|stem| stem.split_once('-'));
            if let Some((client, round)) = numbers.and_then(|(client, round)| Some((client.parse().ok()?, round.parse().ok()?))) {
                files.entry(client).or_default().push(round);
            }
        }
        files.values_mut().for_each(|rounds| rounds.sort_unstable());
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use fedeq_core::{Array, ClientTask};

    use super::*;

    fn weights(value: f32) -> Weights {
        let array = Array::new(vec![200], (0..200).map(|at| value + at as f32 / 100.0).collect());
        Weights { params: [("a".to_owned(), array)].into_iter().collect(), ..Weights::default() }
    }

    fn models(folder: &std::path::Path) -> SentModels {
        let compression = Compression { down: Some(Codec::Int8), keep_rounds: Some(3), ..Compression::default() };
        let folder = folder.join("models");
        SentModels { folder, compression, codec: Codec::Int8, first: weights(0.0), seed: Seed::new(1) }
    }

    fn request(round: u64) -> Request {
        Request { task: ClientTask::Train, round, rounds: 99, rho: None, weights: weights(0.01 * (round + 1) as f32) }
    }

    #[test]
    fn differences_are_to_what_a_client_has_and_whole_models_go_to_whom_nothing_is_known_of() {
        let folder = tempfile::tempdir().expect("a folder");
        let models = models(folder.path());
        let sent = |client, round| models.encode(client, &request(round)).expect("sound");
        let first = sent(0, 0);
        assert!(first.body.len() < 400, "a difference to the first model");
        models.note(0, 0, Some(&first.arrives)).expect("written");
        models.note(1, 0, None).expect("written");
        // A server that was killed before the checkpoint says the same again.
        assert_eq!(sent(0, 0).body, first.body);
        models.settle().expect("settled");
        let (known, unknown) = (sent(0, 1), sent(1, 1));
        assert!(known.body.len() < 400 && unknown.body.len() > 800);
        let has = KnownModel::Since(ReceivedModel { round: 0, weights: first.arrives });
        assert_eq!(decode_model(&known.body, Codec::Int8, &has, &weights(0.0)).expect("sound"), known.arrives);
        assert!(decode_model(&known.body, Codec::Int8, &KnownModel::First(weights(0.0)), &weights(0.0)).is_err());
        // What it has of the model is forgotten after so many rounds, on disk too.
        assert!(sent(0, 3).body.len() < 400 && sent(0, 4).body.len() > 800);
        models.note(1, 5, Some(&unknown.arrives)).expect("written");
        models.settle().expect("settled");
        assert_eq!(models.files().expect("read"), BTreeMap::from([(0, vec![0]), (1, vec![5])]));
        assert_eq!(fs::metadata(models.path(0, 0)).expect("there").len(), 0);
        assert!(sent(0, 6).body.len() > 800);
    }
}
