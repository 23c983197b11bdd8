#![no_main]
use fedeq_flower::envelope::{self, Envelope};
use fedeq_flower::message::Message;
use fedeq_flower::object::{Bundle, Id, Object, ObjectKind};
use libfuzzer_sys::fuzz_target;

const KINDS: [ObjectKind; 7] = [
    ObjectKind::Message,
    ObjectKind::RecordDict,
    ObjectKind::ArrayRecord,
    ObjectKind::MetricRecord,
    ObjectKind::ConfigRecord,
    ObjectKind::Array,
    ObjectKind::ArrayChunk,
];
/// What a message may take.
const LITTLE: usize = 4096;
/// In a body: the id of the object whose number follows.
const REFERENCE: u8 = 0xff;

/// Objects that refer to those before them. Ids are hashes, which no search would ever guess, so they are put in here.
///
/// Each is: its kind, the number of its children and their numbers, the length of its body in two bytes, its body.
fn bundle(bytes: &[u8]) -> Option<(Id, Bundle)> {
    let (mut bundle, mut ids, mut left) = (Bundle::default(), Vec::<Id>::new(), bytes.iter().copied());
    while let Some(kind) = left.next() {
        let named = |number: u8| ids.get(usize::from(number) % ids.len().max(1)).cloned();
        let count = left.next()? % 8;
        let children = (0..count).filter_map(|_| named(left.next()?)).collect();
        let length = u16::from_le_bytes([left.next()?, left.next()?]) % 1024;
        let mut body = Vec::new();
        for _ in 0..length {
            match left.next()? {
                REFERENCE => body.extend(named(left.next()?).unwrap_or_default().into_bytes()),
                byte => body.push(byte),
            }
        }
        ids.push(bundle.add(&Object { kind: KINDS[usize::from(kind) % KINDS.len()], children, body }));
    }
    Some((ids.pop()?, bundle))
}

// Whatever tree of objects arrives under true hashes, it is read or refused; what is read is written so that it is read again.
fuzz_target!(|bytes: &[u8]| {
    let Some((id, bundle)) = bundle(bytes) else { return };
    let _ = bundle.tree(&id);
    if let Ok(Message { content: Ok(small), .. }) = Message::inflate_within(&id, &bundle, LITTLE) {
        let sizes = small.arrays("weights").map(|arrays| arrays.iter().map(|(_, array)| 4 * array.values.len()).sum::<usize>());
        assert!(sizes.unwrap_or(0) <= LITTLE, "what may be little is little");
    }
    let Ok(message) = Message::inflate(&id, &bundle) else { return };
    let (mut once, mut twice) = (Bundle::default(), Bundle::default());
    let written = message.deflate(&mut once);
    let again = Message::inflate(&written, &once).expect("what we write we can read");
    assert_eq!(again.deflate(&mut twice), written);
    if let Ok(content) = &message.content {
        let _ = Envelope::read(content);
        let _ = envelope::read_reply(content);
    }
});
