use crate::sound::assert_sound;
use crate::{assert_refused, nowhere};
use fedeq_data::source::Source;
use fedeq_data::source::table::Table;
use fedeq_data::{Dataset, Labels, Result, Samples};
use std::fs;

const TABLE: &str = "age,client,label,height\n1,ann,10,2.5\n3,bob,9, -4e1\n5,ann,10,\"6\"\n";

fn read(text: &str) -> Result<Dataset> {
    Table::default().read(text.as_bytes(), nowhere())
}

#[test]
fn columns_that_are_neither_client_nor_label_are_features() {
    let dataset = read(TABLE).unwrap();
    assert_sound(&dataset);
    let (Samples::Vectors(vectors), Labels::Classes { names, values }) = (&dataset.samples, &dataset.labels) else {
        panic!("a table has numbers and classes")
    };
    assert_eq!((vectors.width, &vectors.values[..]), (2, &[1.0, 2.5, 3.0, -40.0, 5.0, 6.0][..]));
    assert_eq!((names, values), (&vec!["9".to_string(), "10".to_string()], &vec![1, 0, 1]));
    let owners = dataset.owners.unwrap();
    assert_eq!((owners.names, owners.of), (vec!["ann".into(), "bob".into()], vec![0, 1, 0]));
}

#[test]
fn columns_may_go_by_other_names() {
    let table = Table { client: Some("site".into()), label: "kind".into(), ..Table::default() };
    let dataset = table.read("kind,site,x\ndog,1,0\ncat,2,0\n".as_bytes(), nowhere()).unwrap();
    let Labels::Classes { names, values } = dataset.labels else { panic!("classes") };
    assert_eq!((names, values), (vec!["cat".into(), "dog".into()], vec![1, 0]));
    assert_eq!(dataset.owners.unwrap().names, ["1", "2"]);
}

#[test]
fn rows_may_belong_to_no_client() {
    let dataset = read("label,x\nlow,1\nhigh,3\n").unwrap();
    assert_sound(&dataset);
    assert_eq!(dataset.owners, None);
}

#[test]
fn the_only_table_of_a_folder_is_found() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("one.csv"), TABLE).unwrap();
    let load = || Source::named("csv").unwrap().load(folder.path());
    assert_eq!(load().unwrap().len(), 3);
    fs::write(folder.path().join("two.csv"), TABLE).unwrap();
    assert_refused(load(), &["2 CSV files"]);
}

#[test]
fn bad_cells_are_refused_with_line_and_column() {
    for cell in ["NaN", "inf", "-inf", "1e39", "tall", ""] {
        let text = format!("client,label,x\nann,0,1\nann,0,{cell}\n");
        assert_refused(read(&text), &["made/up.file", "on line 3", "column `x`", &format!("`{cell}` is not a finite number")]);
    }
    assert_refused(read("client,label,x\n,0,1\n"), &["on line 2", "column `client` is empty"]);
    assert_refused(read("client,label,x\nann,,1\n"), &["on line 2", "column `label` is empty"]);
    assert_refused(read("client,label,x\nann,0\n"), &["on line 2", "`2` fields", "3"]);
    let bytes = &b"client,label,x\nann,0,1\nb\xffb,0,1\n"[..];
    assert_refused(Table::default().read(bytes, nowhere()), &["on line 3", "field 1 is not UTF-8"]);
}

#[test]
fn bad_headers_are_refused() {
    assert_refused(read("client,x\nann,1\n"), &["on line 1", "no column `label`"]);
    assert_refused(read("client,label\nann,1\n"), &["on line 1", "no column left"]);
    assert_refused(read("label,label,x\n1,1,1\n"), &["on line 1", "two columns are called `label`"]);
    assert_refused(read("client,label,x\n"), &["no rows"]);
    assert_refused(read(""), &["no column `label`"]);
    let table = Table { client: Some("label".into()), ..Table::default() };
    assert_refused(table.read("label,x\n1,1\n".as_bytes(), nowhere()), &["both client and label"]);
}

#[test]
fn more_distinct_labels_than_classes_can_be_are_refused() {
    let rows: String = (0..70_000).map(|row| format!("{row},1\n")).collect();
    assert_refused(read(&format!("label,x\n{rows}")), &["`70000` distinct values"]);
}

#[test]
fn rows_elsewhere_have_the_classes_of_an_example() {
    let source = Source::Csv(Table::default());
    let Source::Csv(table) = source.alike(&read("label,x\nno,1\nmaybe,1\nyes,1\n").unwrap()) else { panic!("a table") };
    let dataset = table.read("label,x\nyes,2\n".as_bytes(), nowhere()).unwrap();
    assert_eq!(dataset.classes(), Some(&[2][..]));
    assert_refused(table.read("label,x\nperhaps,2\n".as_bytes(), nowhere()), &["`perhaps`", "maybe, no, yes"]);
}
