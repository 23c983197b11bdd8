//! Secrets that any `threshold` of their holders can put together: Shamir's shares with Feldman's commitments, from FROST's audited crate.
//!
//! What is shared is a random scalar; the key of a mask is derived from it. A commitment tells nothing of a random scalar that is of use, and
//! lets whoever has it tell sound shares from others.
use std::collections::BTreeMap;

use frost_ristretto255::keys::{
    IdentifierList, KeyPackage, SecretShare, SigningShare, VerifiableSecretSharingCommitment, VerifyingShare, reconstruct, split,
};
use frost_ristretto255::{Identifier, SigningKey, VerifyingKey};
use zeroize::Zeroizing;

use crate::error::{Error, Result, sized};
use crate::secrets::{Generator, Key, derive};

/// A random scalar that becomes the key of a mask.
pub(crate) struct Secret(SigningKey);

impl Secret {
    pub(crate) fn random(generator: &mut Generator) -> Self {
        Self(SigningKey::new(generator))
    }

    /// The key that stands behind this secret.
    pub(crate) fn key(&self, tag: &[u8; 32], purpose: &[u8]) -> Key {
        derive(tag, &Zeroizing::new(self.0.serialize()), &[purpose])
    }
}

/// One holder's share of a secret, as it travels.
pub(crate) type Share = Zeroizing<[u8; 32]>;

/// A commitment, as it travels.
type Points = Vec<[u8; 32]>;

/// What a client commits itself to when it deals shares.
#[derive(Clone)]
pub(crate) struct Commitment(VerifiableSecretSharingCommitment);

impl Commitment {
    /// Reads a commitment to a polynomial of exactly the degree that the threshold asks for.
    pub(crate) fn read(client: u16, points: &[[u8; 32]], threshold: usize) -> Result<Self> {
        sized("commitment", points.len(), threshold)?;
        VerifiableSecretSharingCommitment::deserialize(points).map(Self).map_err(|_| Error::BadKey(client))
    }

    fn write(&self) -> Points {
        let points = self.0.serialize().expect("a random coefficient is not zero");
        points.iter().map(|point| <[u8; 32]>::try_from(point.as_slice()).expect("a point takes 32 bytes")).collect()
    }

    /// The public counterpart of the secret.
    fn public(&self) -> Option<VerifyingKey> {
        let first = self.0.serialize().ok()?;
        VerifyingKey::deserialize(first.first()?).ok()
    }
}

fn place(holder: u16) -> Identifier {
    Identifier::try_from(holder + 1).expect("a client's number plus one is not zero")
}

/// Shares of a secret for all holders, and the commitment to them.
pub(crate) fn deal(
    secret: &Secret,
    holders: &[u16],
    threshold: usize,
    generator: &mut Generator,
) -> Result<(BTreeMap<u16, Share>, Points)> {
    let places: Vec<Identifier> = holders.iter().copied().map(place).collect();
    let (most, least) = (u16::try_from(places.len()), u16::try_from(threshold));
    let unfit = || Error::setting("threshold", format!("`{threshold}` of {} shares cannot be dealt", places.len()));
    let (most, least) = most.ok().zip(least.ok()).ok_or_else(unfit)?;
    let (dealt, _) = split(&secret.0, most, least, IdentifierList::Custom(&places), generator).map_err(|_| unfit())?;
    let commitment = dealt.values().next().map(|share| Commitment(share.commitment().clone()).write()).ok_or_else(unfit)?;
    let shares = holders.iter().map(|&holder| {
        let bytes = Zeroizing::new(dealt[&place(holder)].signing_share().serialize());
        (holder, Zeroizing::new(<[u8; 32]>::try_from(bytes.as_slice()).expect("a scalar takes 32 bytes")))
    });
    Ok((shares.collect(), commitment))
}

/// A secret put together again, and the holders whose shares were not sound.
pub(crate) struct Recovered {
    pub(crate) secret: Secret,
    pub(crate) unsound: Vec<u16>,
}

/// Puts a secret together. Shares are checked one by one only if they do not give the secret at once: a check costs as much as all the rest.
pub(crate) fn recover(
    client: u16,
    shares: &BTreeMap<u16, Share>,
    commitment: &Commitment,
    threshold: usize,
) -> Result<Recovered> {
    let unrecoverable = |good| Error::Unrecoverable { client, good, needed: threshold };
    let public = commitment.public().ok_or(Error::BadKey(client))?;
    let read: BTreeMap<u16, SigningShare> =
        shares.iter().filter_map(|(holder, share)| Some((*holder, SigningShare::deserialize(share.as_slice()).ok()?))).collect();
    if let Some(secret) = interpolate(read.iter(), public, threshold) {
        return Ok(Recovered { secret, unsound: missing(shares, &read) });
    }
    let sound: BTreeMap<u16, SigningShare> =
        read.into_iter().filter(|(holder, share)| is_sound(*holder, *share, commitment)).collect();
    let secret = interpolate(sound.iter(), public, threshold).ok_or_else(|| unrecoverable(sound.len()))?;
    Ok(Recovered { secret, unsound: missing(shares, &sound) })
}

fn missing(all: &BTreeMap<u16, Share>, sound: &BTreeMap<u16, SigningShare>) -> Vec<u16> {
    all.keys().filter(|holder| !sound.contains_key(holder)).copied().collect()
}

fn is_sound(holder: u16, share: SigningShare, commitment: &Commitment) -> bool {
    SecretShare::new(place(holder), share, commitment.0.clone()).verify().is_ok()
}

/// The secret at zero of the polynomial through the first shares, if it is the one whose public counterpart is known.
fn interpolate<'a>(
    shares: impl ExactSizeIterator<Item = (&'a u16, &'a SigningShare)>,
    public: VerifyingKey,
    threshold: usize,
) -> Option<Secret> {
    if shares.len() < threshold {
        return None;
    }
    let least = u16::try_from(threshold).ok()?;
    let package = |(holder, share): (&u16, &SigningShare)| {
        KeyPackage::new(place(*holder), *share, VerifyingShare::from(*share), public, least)
    };
    let packages: Vec<KeyPackage> = shares.take(threshold).map(package).collect();
    let secret = reconstruct(&packages).ok()?;
    (VerifyingKey::from(&secret) == public).then_some(Secret(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDERS: [u16; 5] = [0, 3, 7, 20, 65534];

    fn dealt(seed: u8) -> (Secret, BTreeMap<u16, Share>, Commitment) {
        let mut generator = Generator::new(&Zeroizing::new([seed; 32]));
        let secret = Secret::random(&mut generator);
        let (shares, points) = deal(&secret, &HOLDERS, 3, &mut generator).unwrap();
        let commitment = Commitment::read(0, &points, 3).unwrap();
        (secret, shares, commitment)
    }

    #[test]
    fn any_threshold_of_shares_give_the_secret_and_fewer_do_not() {
        let (secret, shares, commitment) = dealt(1);
        for mask in 0u32..32 {
            let some: BTreeMap<u16, Share> = shares
                .iter()
                .enumerate()
                .filter(|(index, _)| mask >> index & 1 == 1)
                .map(|(_, (holder, share))| (*holder, share.clone()))
                .collect();
            match recover(9, &some, &commitment, 3) {
                Ok(found) => {
                    assert!(some.len() >= 3 && found.unsound.is_empty());
                    assert_eq!(*found.secret.key(&[0; 32], b"test"), *secret.key(&[0; 32], b"test"));
                }
                Err(error) => assert_eq!(error, Error::Unrecoverable { client: 9, good: some.len().min(2), needed: 3 }),
            }
        }
    }

    #[test]
    fn unsound_shares_are_left_out_and_named() {
        let (secret, mut shares, commitment) = dealt(2);
        let foreign = dealt(3).1;
        shares.insert(3, foreign[&3].clone());
        shares.insert(7, Zeroizing::new([0xff; 32]));
        let found = recover(9, &shares, &commitment, 3).unwrap();
        assert_eq!(found.unsound, [3, 7]);
        assert_eq!(*found.secret.key(&[0; 32], b"test"), *secret.key(&[0; 32], b"test"));
        shares.insert(20, foreign[&20].clone());
        assert_eq!(recover(9, &shares, &commitment, 3).err(), Some(Error::Unrecoverable { client: 9, good: 2, needed: 3 }));
    }

    #[test]
    fn commitments_of_another_degree_or_of_no_points_are_refused() {
        let (_, _, commitment) = dealt(4);
        let points = commitment.write();
        assert_eq!(
            Commitment::read(1, &points[..2], 3).err(),
            Some(Error::WrongSize { what: "commitment", found: 2, expected: 3 })
        );
        assert_eq!(Commitment::read(1, &[points[0], points[1], [0; 32]], 3).err(), Some(Error::BadKey(1)));
        assert_eq!(Commitment::read(1, &[points[0], points[1], [0xff; 32]], 3).err(), Some(Error::BadKey(1)));
    }
}
