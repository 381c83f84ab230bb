//! The ledger against a naive model: for each frame the set of places that it is in.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use proptest::prelude::*;

use super::*;

const FRAMES: u32 = 6;
const INTERFACES: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Filled(usize),
    Lent,
    Sending(usize),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Fill(usize),
    Lend(u32, usize),
    Unfill(u32, usize),
    Forward(u32, usize, usize),
    SendLent(u32, usize),
    Send(usize),
    EndLoan(u32),
    Complete(u32),
    Reclaim(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Frame 6 doesn't exist.
    let (number, interface) = (0..=FRAMES, 0..INTERFACES);
    let both = (number.clone(), interface.clone());
    prop::collection::vec(
        prop_oneof![
            3 => interface.clone().prop_map(Step::Fill),
            3 => both.clone().prop_map(|(number, at)| Step::Lend(number, at)),
            1 => both.clone().prop_map(|(number, at)| Step::Unfill(number, at)),
            1 => (both.clone(), interface.clone()).prop_map(|((number, at), to)| Step::Forward(number, at, to)),
            3 => both.prop_map(|(number, to)| Step::SendLent(number, to)),
            2 => interface.clone().prop_map(Step::Send),
            3 => number.clone().prop_map(Step::EndLoan),
            3 => number.prop_map(Step::Complete),
            1 => interface.prop_map(Step::Reclaim),
        ],
        0..200,
    )
}

/// The model: a set of places for each frame, none if it is free.
struct Model {
    places: Vec<BTreeSet<Place>>,
    faults: u64,
}

impl Model {
    /// Moves a frame that is in exactly one place. Returns true if it was there.
    fn replace(&mut self, number: u32, from: Place, to: Option<Place>) -> bool {
        let is_there = self.places.get(number as usize).is_some_and(|places| places.iter().eq([&from]));
        if is_there {
            self.places[number as usize] = to.into_iter().collect();
        } else {
            self.faults += 1;
        }
        is_there
    }

    /// Takes a frame from a place. Returns true if it is free then.
    fn remove(&mut self, number: u32, is_it: fn(&Place) -> bool) -> bool {
        let Some(places) = self.places.get_mut(number as usize).filter(|places| places.iter().any(is_it)) else {
            self.faults += 1;
            return false;
        };
        places.retain(|place| !is_it(place));
        places.is_empty()
    }

    fn count(&self, is_it: impl Fn(&BTreeSet<Place>) -> bool) -> usize {
        self.places.iter().filter(|places| is_it(places)).count()
    }
}

const fn is_sending(place: &Place) -> bool {
    matches!(place, Place::Sending(_))
}

proptest! {
    #[test]
    fn every_frame_is_where_the_model_has_it(steps in steps()) {
        let (ledger, mut free) = Ledger::new(FRAMES);
        let mut model = Model { places: vec![BTreeSet::new(); FRAMES as usize], faults: 0 };
        for step in steps {
            let freed: Vec<Frame> = match step {
                Step::Fill(at) => {
                    if let Some(frame) = free.pop() {
                        let number = ledger.fill(frame, at);
                        model.places[number as usize].insert(Place::Filled(at));
                    }
                    vec![]
                }
                Step::Send(to) => {
                    if let Some(frame) = free.pop() {
                        let number = ledger.send(frame, to);
                        model.places[number as usize].insert(Place::Sending(to));
                    }
                    vec![]
                }
                Step::Lend(number, at) => {
                    let expected = model.replace(number, Place::Filled(at), Some(Place::Lent));
                    prop_assert_eq!(ledger.lend(number, at), expected);
                    vec![]
                }
                Step::Unfill(number, at) => {
                    let expected = model.replace(number, Place::Filled(at), None);
                    let freed = ledger.unfill(number, at);
                    prop_assert_eq!(freed.is_some(), expected);
                    freed.into_iter().collect()
                }
                Step::Forward(number, at, to) => {
                    let expected = model.replace(number, Place::Filled(at), Some(Place::Sending(to)));
                    prop_assert_eq!(ledger.forward(number, at, to), expected);
                    vec![]
                }
                Step::SendLent(number, to) => {
                    let faults = model.faults;
                    let expected = model.replace(number, Place::Lent, Some(Place::Lent));
                    if expected {
                        model.places[number as usize].insert(Place::Sending(to));
                    }
                    // It is no fault if the frame is elsewhere: then the packet is copied.
                    model.faults = faults + u64::from(number >= FRAMES);
                    prop_assert_eq!(ledger.send_lent(number, to), expected);
                    vec![]
                }
                Step::EndLoan(number) => {
                    let expected = model.remove(number, |place| *place == Place::Lent);
                    let freed = ledger.end_loan(number);
                    prop_assert_eq!(freed.is_some(), expected);
                    freed.into_iter().collect()
                }
                Step::Complete(number) => {
                    let expected = model.remove(number, is_sending);
                    let freed = ledger.complete(number);
                    prop_assert_eq!(freed.is_some(), expected);
                    freed.into_iter().collect()
                }
                Step::Reclaim(at) => {
                    let mut expected = vec![];
                    for (number, places) in model.places.iter_mut().enumerate() {
                        let before = places.len();
                        places.retain(|place| *place != Place::Filled(at) && *place != Place::Sending(at));
                        if places.len() < before && places.is_empty() {
                            expected.push(number as u32);
                        }
                    }
                    let freed = ledger.reclaim(at);
                    prop_assert_eq!(freed.iter().map(Frame::number).collect::<Vec<_>>(), expected);
                    freed
                }
            };
            for frame in freed {
                prop_assert!(!free.contains(&frame), "a token there is once");
                free.push(frame);
            }
            let balance = Balance { at_hand: free.len(), ..ledger.balance() };
            prop_assert_eq!(balance.faults, model.faults);
            prop_assert_eq!(balance.free, model.count(BTreeSet::is_empty));
            prop_assert_eq!(balance.filled, model.count(|places| matches!(places.first(), Some(Place::Filled(_)))));
            prop_assert_eq!(balance.lent_and_sending, model.count(|places| places.len() == 2));
            prop_assert!(Balance { faults: 0, ..balance }.adds_up(), "{:?}", balance);
        }
    }
}

#[test]
fn a_frame_lent_and_sent_is_free_once_whichever_ends_last() {
    let (ledger, mut free) = Ledger::new(64);
    let ledger = Arc::new(ledger);
    for _ in 0..if cfg!(miri) { 2 } else { 200 } {
        for frame in free.drain(..) {
            let number = ledger.fill(frame, 1);
            assert!(ledger.lend(number, 1) && ledger.send_lent(number, 0));
        }
        let other = Arc::clone(&ledger);
        let loans = thread::spawn(move || (0..64).filter_map(|number| other.end_loan(number)).collect::<Vec<_>>());
        free.extend((0..64).filter_map(|number| ledger.complete(number)));
        free.extend(loans.join().expect("it doesn't panic"));
        free.sort_by_key(Frame::number);
        assert_eq!(free.iter().map(Frame::number).collect::<Vec<_>>(), (0..64).collect::<Vec<_>>());
    }
    assert!(Balance { at_hand: free.len(), ..ledger.balance() }.adds_up());
}

#[test]
fn a_leaked_frame_does_not_add_up() {
    let (ledger, mut free) = Ledger::new(4);
    let _leaked = free.pop();
    assert!(!Balance { at_hand: free.len(), ..ledger.balance() }.adds_up());
}
