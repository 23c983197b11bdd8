#![no_main]
use fedeq_core::{Array, Codec, KnownModel, Params, Reply, Weights, decode_model};
use libfuzzer_sys::fuzz_target;

const CODECS: [Codec; 6] =
    [Codec::Float16, Codec::Int8, Codec::Int4, Codec::TopK(0.1), Codec::TopK(1.0), Codec::LowRank(2)];

/// A matrix, a convolution, a vector, a number and nothing.
fn layout() -> Params {
    let shapes = [vec![6, 7], vec![4, 3, 3, 3], vec![131], vec![], vec![0, 5]];
    let array = |(at, shape): (usize, Vec<usize>)| (at.to_string(), Array::new(shape.clone(), vec![0.0; shape.iter().product()]));
    shapes.into_iter().enumerate().map(array).collect()
}

// Whatever bytes arrive, they are finite numbers of the layout that both sides know, or refused. The first byte chooses the codec.
fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    if let Ok(reply) = Reply::decode(bytes) {
        let again = reply.encode().map(|bytes| Reply::decode(&bytes));
        assert!(matches!(again, Ok(Ok(_))), "what we write we can read");
    }
    let (codec, like) = (CODECS[usize::from(*choice) % CODECS.len()], layout());
    let whole = Weights { params: like.clone(), ..Weights::default() };
    if let Ok(model) = decode_model(bytes, codec, &KnownModel::First(whole.clone()), &whole) {
        model.ensure_like(&whole).expect("finite numbers of the layout");
    }
    if let Ok(arrived) = codec.decode(bytes, &like) {
        arrived.ensure_like(&like).expect("finite numbers of the layout");
    }
});
