//! The members of objects, and their order by name.

use super::document::{NotCanonical, Span};
use super::scan::slice;
use crate::fingerprint::DuplicateMembers;

/// A member of an object. Positions are `u32`: a body is at most 16 MiB.
#[derive(Clone, Copy, Default)]
pub(super) struct Member {
    /// The first eight bytes of the name, as a number that sorts like them; zeros fill a shorter one.
    pub order: u64,
    pub name_start: u32,
    pub name_end: u32,
    pub key_start: u32,
    pub key_end: u32,
    pub value_start: u32,
    pub value_end: u32,
    pub object: u32,
    pub name_unescaped: bool,
    /// The key is spelled as the canonical text spells it.
    pub key_clean: bool,
    /// The value is canonical as it stands.
    pub clean: bool,
    /// Key, colon and value are canonical as they stand, with nothing between them.
    pub whole: bool,
}

impl Member {
    pub fn value(&self) -> Span {
        Span {
            start: self.value_start as usize,
            end: self.value_end as usize,
            object: self.object as usize,
            clean: self.clean,
        }
    }
}

/// A member's name, unescaped.
pub(super) fn name<'b>(text: &'b [u8], names: &'b [u8], member: &Member) -> &'b [u8] {
    let from = if member.name_unescaped { names } else { text };
    slice(from, member.name_start as usize, member.name_end as usize)
}

/// The first eight bytes of a name at a place, as in [`Member::order`].
#[inline]
pub(super) fn order(text: &[u8], start: usize, end: usize) -> u64 {
    let len = end.saturating_sub(start);
    if len == 0 {
        return 0;
    }
    match text.get(start..).and_then(|rest| rest.first_chunk::<8>()) {
        Some(bytes) if len >= 8 => u64::from_be_bytes(*bytes),
        Some(bytes) => {
            let unused = 64usize.saturating_sub(len.saturating_mul(8)) as u32;
            u64::from_be_bytes(*bytes).wrapping_shr(unused).wrapping_shl(unused)
        }
        None => {
            let name = slice(text, start, end).iter().take(8);
            let shifted =
                |(place, byte): (u32, &u8)| u64::from(*byte).wrapping_shl(56u32.saturating_sub(place * 8));
            (0..).zip(name).map(shifted).fold(0, |order, byte| order | byte)
        }
    }
}

/// Most members of an object whose order is remembered for the next one.
const FEW: usize = 32;

/// Sorts the members of one object after the other.
#[derive(Default)]
pub(super) struct Sorter {
    /// Places of the last object's members, in the order of their names.
    shape: Vec<u8>,
}

impl Sorter {
    /// Moves members that are out of order to the table, sorted by name. Objects of one list mostly
    /// have their members in one order, so that of the last object is tried first.
    pub(super) fn keep(
        &mut self,
        text: &[u8],
        names: &[u8],
        members: &[Member],
        duplicates: DuplicateMembers,
        table: &mut Vec<Member>,
    ) -> Result<(), NotCanonical> {
        if self.shape.len() == members.len() && keep_in_shape(members, &self.shape, table) {
            return Ok(());
        }
        let by_name = |a: &Member, b: &Member| {
            let names = || name(text, names, a).cmp(name(text, names, b));
            a.order.cmp(&b.order).then_with(names)
        };
        let members_start = table.len();
        if members.len() > FEW {
            table.extend_from_slice(members);
            let table = table.get_mut(members_start..).unwrap_or_default();
            table.sort_unstable_by(|a, b| by_name(a, b).then(a.key_start.cmp(&b.key_start)));
        } else {
            self.shape.clear();
            for (place, member) in members.iter().enumerate() {
                let after = |other: &&u8| {
                    let other = members.get(usize::from(**other));
                    other.is_some_and(|other| by_name(other, member).is_gt())
                };
                let later = self.shape.iter().rev().take_while(after).count();
                self.shape.insert(self.shape.len().saturating_sub(later), place as u8);
            }
            table.extend(self.shape.iter().filter_map(|place| members.get(usize::from(*place))));
        }
        let sorted = table.get(members_start..).unwrap_or_default();
        let same = |a: &Member, b: &Member| by_name(a, b).is_eq();
        if sorted.iter().zip(sorted.iter().skip(1)).any(|(a, b)| same(a, b)) {
            if duplicates != DuplicateMembers::Last {
                return Err(NotCanonical::Duplicate);
            }
            let sorted = table.split_off(members_start);
            let followed = sorted.iter().skip(1).map(Some).chain([None]);
            let last =
                |(member, next): &(&Member, Option<&Member>)| next.is_none_or(|next| !same(member, next));
            table.extend(sorted.iter().zip(followed).filter(last).map(|(member, _)| member));
        }
        Ok(())
    }
}

/// Moves members in a given order to the table, if that order is theirs: told by the beginnings of
/// the names alone, so that equal ones are none.
fn keep_in_shape(members: &[Member], shape: &[u8], table: &mut Vec<Member>) -> bool {
    let start = table.len();
    let mut least = None;
    for place in shape {
        let Some(member) = members.get(usize::from(*place)).filter(|member| Some(member.order) > least)
        else {
            table.truncate(start);
            return false;
        };
        least = Some(member.order);
        table.push(*member);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_order_of_beginnings_never_contradicts_that_of_names(
            one in "[a-c\0]{0,12}", other in "[a-c\0]{0,12}", after in "[a-c]{0,9}") {
            let at = |name: &str| order(format!("\"{name}{after}").as_bytes(), 1, 1 + name.len());
            prop_assert!(at(&one) == at(&other) || (at(&one) < at(&other)) == (one < other));
            prop_assert_eq!(at(&one), order(one.as_bytes(), 0, one.len()));
        }
    }
}
