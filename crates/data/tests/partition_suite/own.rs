//! Clients that bring their own samples.
use fedeq_data::partition::{ClientIndices, Partition, Pick, Split};
use fedeq_data::{Dataset, Seed};

use crate::support::{labelled, owned, refusal};

const SIZES: [usize; 3] = [23, 7, 41];
const SPLIT: Split = Split { validation: 0.2, test: Some(0.3) };

/// What an owner would have on a machine of its own.
fn alone(owner: usize) -> Dataset {
    let start: usize = SIZES[..owner].iter().sum();
    labelled(3, (start..start + SIZES[owner]).map(|sample| (sample % 3) as u16).collect(), None)
}

fn shifted(client: &ClientIndices, by: u32) -> [Vec<u32>; 3] {
    [&client.train, &client.validation, &client.test].map(|part| part.iter().map(|sample| sample + by).collect())
}

#[test]
fn a_client_on_its_own_machine_has_what_it_has_among_all() {
    let natural = Partition::Natural { clients: None, pick: Pick::First, minimum: 1 };
    let together = natural.assign(&owned(&SIZES), &SPLIT, Seed::new(5)).unwrap();
    for owner in 0..SIZES.len() {
        let own = Partition::Own { clients: 3, here: Some(owner) };
        let apart = own.assign(&alone(owner), &SPLIT, Seed::new(5)).unwrap();
        let start: usize = SIZES[..owner].iter().sum();
        assert_eq!(shifted(&apart.clients[owner], start as u32), shifted(&together.clients[owner], 0));
        let others = apart.clients.iter().enumerate().filter(|(client, _)| *client != owner);
        assert!(others.into_iter().all(|(_, client)| client.train.is_empty() && client.test.is_empty()));
    }
}

#[test]
fn where_no_client_is_there_are_no_samples() {
    for here in [None, Some(3)] {
        let clients = Partition::Own { clients: 3, here }.assign(&alone(0), &SPLIT, Seed::new(0)).unwrap().clients;
        let names: Vec<&str> = clients.iter().map(|client| client.name.as_str()).collect();
        assert_eq!(names, ["client-0", "client-1", "client-2"]);
        assert!(clients.iter().all(|client| client.train.is_empty()));
    }
}

#[test]
fn whose_machine_it_is_does_not_stand_in_an_experiment() {
    let own = Partition::Own { clients: 3, here: Some(1) };
    let text = serde_json::to_string(&own).unwrap();
    assert_eq!(text, r#"{"rule":"own","clients":3}"#);
    assert_eq!(serde_json::from_str::<Partition>(&text).unwrap(), Partition::Own { clients: 3, here: None });
    assert!(serde_json::from_str::<Partition>(r#"{"rule":"own","clients":3,"here":1}"#).is_err());
}

#[test]
fn numbers_of_clients_that_cannot_be_are_refused() {
    for clients in [0, 2_000_000] {
        let (problem, remedy) = refusal(&Partition::Own { clients, here: None }, &alone(0), &SPLIT);
        assert!(problem.contains(&format!("`{clients}`")) && remedy.contains("1 to 1000000"), "{problem}: {remedy}");
    }
}
