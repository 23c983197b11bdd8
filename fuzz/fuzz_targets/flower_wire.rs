#![no_main]
use fedeq_flower::message::Message;
use fedeq_flower::npy;
use fedeq_flower::object::{Bundle, Object, id_of, ids_of};
use fedeq_flower::wire::{PullMessagesResponse, PullObjectResponse, PushMessagesResponse};
use libfuzzer_sys::fuzz_target;
use prost::Message as _;

// Whatever a SuperLink answers is read or refused.
fuzz_target!(|bytes: &[u8]| {
    if let Ok(pulled) = PullMessagesResponse::decode(bytes) {
        let counts = pulled.trees.iter().filter_map(|tree| ids_of(tree, 100).ok()).map(|ids| ids.len());
        assert!(counts.into_iter().all(|count| (1..=100).contains(&count)));
    }
    let _ = PullObjectResponse::decode(bytes);
    let _ = PushMessagesResponse::decode(bytes);
    if let Ok(array) = npy::read(bytes) {
        assert_eq!(npy::read(&npy::write(&array)).map(|again| again.shape), Ok(array.shape));
    }
    let id = id_of(bytes);
    if let Ok(object) = Object::from_bytes(&id, bytes) {
        assert_eq!(id_of(&object.to_bytes()).len(), id.len());
    }
    let mut bundle = Bundle::default();
    bundle.receive(id.clone(), bytes.to_vec());
    let _ = Message::inflate(&id, &bundle);
});
