//! What each publisher offers, with checksums.
//!
//! The length and SHA-256 of the CIFAR archives are those that independent projects publish for the same addresses (GoMLX,
//! Julia's MLDatasets, torchvision-ruby); those of the members were computed from bit-exact copies and agree with what
//! torchvision-ruby publishes of them.
use std::path::{Path, PathBuf};

use super::archive::{Archive, Member};
use super::fingerprint::Fingerprint;
use super::recipe::Recipe;
use crate::source::Source;
use crate::source::text::Text;

/// How a data set can be had.
#[derive(Clone, Debug, PartialEq)]
pub enum Offer {
    /// As an archive that is downloaded, checked and unpacked.
    Archive(Archive),
    /// As raw material that a person prepares.
    Recipe(Recipe),
}

/// The offer for a data set; none for a set that needs no fetching or is not known.
///
/// ```
/// use fedeq_data::fetch::offer::offer;
/// assert!(offer("cifar10").is_some());
/// assert!(offer("digits").is_none());
/// ```
pub fn offer(name: &str) -> Option<Offer> {
    match name {
        "cifar10" => Some(Offer::Archive(cifar10())),
        "cifar100" => Some(Offer::Archive(cifar100())),
        "femnist" => Some(Offer::Recipe(femnist())),
        "shakespeare" => Some(Offer::Recipe(shakespeare())),
        _ => None,
    }
}

/// The folder in which a data set's files lie, among those that its reader looks in: a glance, not a check of every byte.
pub fn find(source: &Source, data: &Path) -> Option<PathBuf> {
    let offer = offer(source.name())?;
    let mut folders = source.entry().places.iter().map(|place| data.join(place));
    folders.find(|folder| offer.lies_in(folder))
}

impl Offer {
    fn lies_in(&self, folder: &Path) -> bool {
        match self {
            Self::Archive(archive) => archive.members.iter().all(|member| folder.join(member.file_name()).is_file()),
            Self::Recipe(recipe) => recipe.lies_in(folder),
        }
    }
}

fn cifar10() -> Archive {
    const BATCH: u64 = 30_730_000;
    let member = |file, sha256| member("cifar-10-batches-bin", file, BATCH, sha256);
    Archive {
        address: "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz".into(),
        fingerprint: Fingerprint::new(170_052_171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
        members: vec![
            member("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
            member("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
            member("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
            member("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
            member("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
            member("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
        ],
    }
}

fn cifar100() -> Archive {
    let member = |file, bytes, sha256| member("cifar-100-binary", file, bytes, sha256);
    Archive {
        address: "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz".into(),
        fingerprint: Fingerprint::new(168_513_733, "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),
        members: vec![
            member("train.bin", 153_700_000, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
            member("test.bin", 30_740_000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
        ],
    }
}

fn member(folder: &str, file: &str, bytes: u64, sha256: &str) -> Member {
    Member { path: format!("{folder}/{file}"), fingerprint: Fingerprint::new(bytes, sha256) }
}

fn femnist() -> Recipe {
    Recipe {
        source: Source::Femnist {},
        folder: "femnist/data/all_data",
        names: &[("all_data", ".json")],
        reason: "NIST publishes scanned forms (Special Database 19), which LEAF's scripts turn into pictures by writer",
        steps: &[
            "git clone https://github.com/TalwalkarLab/leaf && cd leaf/data/femnist",
            "./preprocess.sh -s niid --sf 1.0 -k 0 -t sample    # fetches by_class.zip and by_write.zip from NIST",
            "fedeq data get femnist --from data/all_data",
        ],
    }
}

fn shakespeare() -> Recipe {
    Recipe {
        source: Source::Shakespeare(Text::default()),
        folder: "shakespeare",
        names: &[("roles", ".jsonl"), ("all_data", ".json")],
        reason: "Project Gutenberg publishes the complete works as one text, which LEAF's scripts cut into speaking roles",
        steps: &[
            "git clone https://github.com/TalwalkarLab/leaf && cd leaf/data/shakespeare",
            "./preprocess.sh -s niid --sf 1.0 -k 0 -t sample    # fetches ebook 100 from gutenberg.org, whose address has moved before",
            "fedeq data get shakespeare --from data/all_data",
        ],
    }
}
