use crate::sound::assert_sound;
use crate::{assert_refused, nowhere};
use fedeq_data::source::digits::{self, LAYOUT};
use fedeq_data::source::records::Records;
use fedeq_data::{Labels, Samples};

#[test]
fn the_built_in_digits_are_the_published_ones() {
    let digits = digits::load().unwrap();
    assert_sound(&digits);
    assert_eq!(digits.len(), 1_797);
    let Labels::Classes { names, values } = &digits.labels else { panic!("digits have classes") };
    assert_eq!(names.len(), 10);
    // The class counts in the description that comes with the data (UCI, test part).
    let counts: Vec<_> = (0..10).map(|digit| values.iter().filter(|&&class| class == digit).count()).collect();
    assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
}

#[test]
fn the_first_digit_is_the_zero_of_the_scikit_learn_manual() {
    let digits = digits::load().unwrap();
    let Samples::Images(images) = &digits.samples else { panic!("digits are pictures") };
    assert_eq!((images.shape, images.white), ([8, 8, 1], 16));
    assert_eq!(images.pixels[..16], [0, 0, 5, 13, 9, 1, 0, 0, 0, 0, 13, 15, 10, 15, 5, 0]);
}

#[test]
fn a_value_above_sixteen_is_refused() {
    let mut record = vec![3; LAYOUT.record_bytes()];
    record[40] = 17;
    assert_refused(Records::new(LAYOUT).read(&record[..], nowhere()), &["made/up.file", "in record 0", "`17`"]);
}
