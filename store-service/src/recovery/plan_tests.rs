//! The plan over all combinations of what it goes by.

use super::*;
use OperationStatus::{Admitted, Failed, NeedsReconciliation, Succeeded, Unknown};

const GIVE_UP: GiveUp = GiveUp { attempts: 3, age_ms: 1_000 };

fn contracts() -> Vec<Option<Contract>> {
    let mut all = vec![None];
    for bits in 0..16_u32 {
        let bit = |at: u32| bits & (1 << at) != 0;
        for key_kept_ms in [0, 500, 5_000] {
            all.push(Some(Contract {
                lookup: bit(0),
                submit: bit(1),
                atomic_concurrent_keys: bit(2),
                same_parameters: bit(3),
                key_kept_ms,
            }));
        }
    }
    all
}

fn stored() -> OperationAnswer {
    OperationAnswer { status: 201, headers: bytes::Bytes::new(), body: bytes::Bytes::from_static(b"x") }
}

fn answers() -> Vec<Answer> {
    vec![
        Answer::Succeeded { reference: Some("cr_1".into()), answer: None },
        Answer::Succeeded { reference: None, answer: Some(stored()) },
        Answer::Refused { reason: Some("closed".into()), answer: None },
        Answer::InProgress,
        Answer::NotFound,
        Answer::Unclear("?".into()),
        Answer::Unreachable("!".into()),
    ]
}

fn knowns() -> Vec<Known> {
    let mut all = vec![Known::Nothing, Known::NotAsked];
    all.extend(answers().into_iter().map(Known::Lookup));
    all.extend(answers().into_iter().map(Known::Submit));
    all
}

fn views() -> Vec<View> {
    let mut all = Vec::new();
    for status in [Admitted, Unknown, Succeeded, Failed, NeedsReconciliation] {
        for mine in [false, true] {
            for lease_left_ms in [0, 1] {
                for submit_left_ms in [0, 1] {
                    for age_ms in [0, 499, 500, 999, 1_000, 1_999, 2_000, u64::MAX] {
                        for attempts in [0, 1, 2, 3, u32::MAX] {
                            all.extend([0, 2, 3, u32::MAX].map(|turns| View {
                                status,
                                mine,
                                lease_left_ms,
                                submit_left_ms,
                                age_ms,
                                attempts,
                                turns,
                            }));
                        }
                    }
                }
            }
        }
    }
    all
}

/// Calls with every combination.
fn each(mut check: impl FnMut(&View, Option<&Contract>, &Known, Step)) {
    let (contracts, knowns) = (contracts(), knowns());
    for view in views() {
        for contract in &contracts {
            for known in &knowns {
                check(&view, contract.as_ref(), known, plan(&view, contract.as_ref(), known, &GIVE_UP));
            }
        }
    }
}

fn open(view: &View) -> bool {
    matches!(view.status, Admitted | Unknown)
}

#[test]
fn an_end_is_never_touched_and_neither_is_what_somebody_else_owns() {
    each(|view, _, _, step| {
        let leave = match view.status {
            Succeeded | Failed => Some(Step::Leave(Leave::Ended)),
            NeedsReconciliation => Some(Step::Leave(Leave::ForPerson)),
            Admitted | Unknown if view.mine => None,
            Admitted | Unknown if view.lease_left_ms > 0 => Some(Step::Leave(Leave::Owned)),
            Admitted | Unknown => Some(Step::TakeOver),
        };
        match leave {
            Some(expected) => assert_eq!(step, expected, "{view:?}"),
            None => assert!(!matches!(step, Step::Leave(_) | Step::TakeOver), "{view:?}: {step:?}"),
        }
    });
}

#[test]
fn failed_needs_the_providers_own_word_and_so_does_succeeded() {
    each(|view, contract, known, step| {
        let told = match known {
            Known::Lookup(answer) | Known::Submit(answer) if view.mine && open(view) => Some(answer),
            _ => None,
        };
        let told = told.filter(|_| contract.is_some_and(|contract| contract.lookup));
        match &step {
            Step::Fail { reason, answer } => {
                let said = Answer::Refused { reason: reason.clone(), answer: answer.clone() };
                assert_eq!(told, Some(&said), "{view:?}");
            }
            Step::Succeed { reference, answer } => {
                let said = Answer::Succeeded { reference: reference.clone(), answer: answer.clone() };
                assert_eq!(told, Some(&said), "{view:?}");
            }
            _ => {
                assert!(!matches!(told, Some(Answer::Refused { .. } | Answer::Succeeded { .. })), "{view:?}")
            }
        }
    });
}

#[test]
fn nothing_is_sent_again_outside_the_contract_or_the_window() {
    let mut sent = 0;
    each(|view, contract, known, step| {
        if step == Step::Submit {
            sent += 1;
            let contract = contract.unwrap();
            assert!(contract.lookup && contract.submit, "{contract:?}");
            assert!(contract.atomic_concurrent_keys && contract.same_parameters, "{contract:?}");
            assert!(view.age_ms < contract.key_kept_ms, "{view:?} {contract:?}");
            assert!(view.submit_left_ms > 0 && view.mine && open(view), "{view:?}");
            assert!(view.age_ms < GIVE_UP.age_ms && view.attempts < GIVE_UP.attempts, "{view:?}");
            assert_eq!(*known, Known::Lookup(Answer::NotFound), "only after a look-up of this turn");
        }
    });
    assert!(sent > 0);
}

#[test]
fn nothing_is_looked_up_where_there_is_no_look_up_and_once_in_a_turn() {
    each(|view, contract, known, step| {
        let can = contract.is_some_and(|contract| contract.lookup);
        let expected = view.mine && open(view) && can && *known == Known::Nothing;
        assert_eq!(step == Step::LookUp, expected, "{view:?} {known:?}: {step:?}");
    });
}

#[test]
fn every_turn_comes_to_an_end_and_none_stays_open_for_ever() {
    each(|view, contract, known, step| {
        if !(view.mine && open(view)) {
            return;
        }
        let over = view.age_ms >= GIVE_UP.age_ms;
        match step {
            // Goes on with something that is known afterwards.
            Step::LookUp => assert_eq!(*known, Known::Nothing),
            Step::Submit => assert!(matches!(known, Known::Lookup(_))),
            Step::Later { counted } => {
                let patient = *known == Known::NotAsked || (silent(known) && waits_for_silence(view));
                assert!(!over || patient, "{view:?} {contract:?} {known:?}: later, for ever");
                assert!(!counted || view.attempts.saturating_add(1) < GIVE_UP.attempts, "{view:?}");
            }
            Step::ForPerson(because) => match because {
                Because::NoProvider => assert!(contract.is_none() && over),
                Because::NoLookup => assert!(!contract.unwrap().lookup),
                Because::WindowPassed => assert_eq!(view.submit_left_ms, 0),
                Because::KeyForgotten => assert!(view.age_ms >= contract.unwrap().key_kept_ms),
                Because::Attempts => assert!(view.attempts.saturating_add(1) >= GIVE_UP.attempts),
                Because::Age => assert!(over),
            },
            Step::Succeed { .. } | Step::Fail { .. } => {}
            Step::Leave(_) | Step::TakeOver => panic!("{view:?}: {step:?}"),
        }
    });
}

/// Is this no answer at all?
fn silent(known: &Known) -> bool {
    matches!(known, Known::Lookup(Answer::Unreachable(_)) | Known::Submit(Answer::Unreachable(_)))
}

fn waits_for_silence(view: &View) -> bool {
    view.attempts == 0 && (view.turns < 3 || view.age_ms < 2_000)
}

/// A provider that is away for a moment must not send everything that is old to people.
#[test]
fn nobody_is_asked_because_of_silence_before_a_look_up_was_answered() {
    each(|view, contract, known, step| {
        let looks = contract.is_some_and(|contract| contract.lookup);
        if !(looks && view.mine && open(view)) {
            return;
        }
        if *known == Known::NotAsked || (silent(known) && waits_for_silence(view)) {
            assert_eq!(step, Step::Later { counted: false }, "{view:?} {known:?}");
        }
    });
}

/// An outage of the provider does not send what it could answer tomorrow to people.
#[test]
fn silence_does_not_use_up_the_attempts() {
    each(|view, contract, known, step| {
        let silent = matches!(
            known,
            Known::Lookup(Answer::Unreachable(_) | Answer::InProgress)
                | Known::Submit(Answer::Unreachable(_) | Answer::InProgress)
        );
        let can = contract.is_some_and(|contract| contract.lookup);
        if silent && view.mine && open(view) && can && view.age_ms < GIVE_UP.age_ms {
            assert_eq!(step, Step::Later { counted: false }, "{view:?}");
        }
    });
}

#[test]
fn not_found_while_the_first_request_may_be_on_its_way_is_looked_up_again_and_never_sent() {
    let contract = Contract {
        lookup: true,
        submit: false,
        atomic_concurrent_keys: false,
        same_parameters: true,
        key_kept_ms: 5_000,
    };
    let view = View {
        status: Admitted,
        mine: true,
        lease_left_ms: 10,
        submit_left_ms: 10,
        age_ms: 10,
        attempts: 0,
        turns: 0,
    };
    let not_found = Known::Lookup(Answer::NotFound);
    assert_eq!(plan(&view, Some(&contract), &not_found, &GIVE_UP), Step::Later { counted: true });
    let tired = View { attempts: 2, ..view };
    let step = plan(&tired, Some(&contract), &not_found, &GIVE_UP);
    assert_eq!(step, Step::ForPerson(Because::Attempts));
    let late = View { submit_left_ms: 0, ..view };
    let step = plan(&late, Some(&contract), &not_found, &GIVE_UP);
    assert_eq!(step, Step::ForPerson(Because::WindowPassed));
}
