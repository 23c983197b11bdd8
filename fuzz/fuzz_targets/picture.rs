#![no_main]
use fedeq_data::source::image_folder::ImageFolder;
use libfuzzer_sys::fuzz_target;
use std::io::Cursor;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(picture) = ImageFolder::default().decode(Cursor::new(bytes), "picture".as_ref()) {
        assert_eq!(picture.pixels.len(), picture.shape.iter().product::<usize>());
    }
});
