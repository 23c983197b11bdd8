//! Compressed numbers and replies, from their bytes to what both sides know the layout of.
#![allow(dead_code, unreachable_pub, reason = "a target and a test each use a part")]
use fedeq_core::{Array, Codec, KnownModel, Params, Reply, Weights, decode_model};

/// The first byte of an input chooses one.
pub const CODECS: [Codec; 6] = [Codec::Float16, Codec::Int8, Codec::Int4, Codec::TopK(0.1), Codec::TopK(1.0), Codec::LowRank(2)];

/// A matrix, a convolution, a vector, a number and nothing.
pub fn layout() -> Params {
    let shapes = [vec![6, 7], vec![4, 3, 3, 3], vec![131], vec![], vec![0, 5]];
    let array = |(at, shape): (usize, Vec<usize>)| (at.to_string(), Array::new(shape.clone(), vec![0.0; shape.iter().product()]));
    shapes.into_iter().enumerate().map(array).collect()
}

/// As how many things the bytes can be read: a reply, a model, an update. What is read holds finite numbers of the layout that both sides know.
pub fn readings(bytes: &[u8]) -> usize {
    let Some((choice, bytes)) = bytes.split_first() else { return 0 };
    let reply = Reply::decode(bytes);
    if let Ok(reply) = &reply {
        let again = reply.encode().map(|bytes| Reply::decode(&bytes));
        assert!(matches!(again, Ok(Ok(_))), "what we write we can read");
    }
    let (codec, like) = (CODECS[usize::from(*choice) % CODECS.len()], layout());
    let whole = Weights { params: like.clone(), ..Weights::default() };
    let model = decode_model(bytes, codec, &KnownModel::First(whole.clone()), &whole);
    if let Ok(model) = &model {
        model.ensure_like(&whole).expect("finite numbers of the layout");
    }
    let update = codec.decode(bytes, &like);
    if let Ok(update) = &update {
        update.ensure_like(&like).expect("finite numbers of the layout");
    }
    [reply.is_ok(), model.is_ok(), update.is_ok()].into_iter().filter(|is_read| *is_read).count()
}
