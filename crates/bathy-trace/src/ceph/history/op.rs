//! An operation of a history, read where it stands.
//!
//! No order of members is assumed. A description is looked at first where it comes first, as it does: then the events of
//! what is not wanted are stepped over.

use std::borrow::Cow;

use super::clock::Clock;
use super::events::Events;
use crate::json::cursor::{Bad, Cursor};

/// What an op says. Times that are seldom needed are places to read them.
#[derive(Default)]
pub(crate) struct HistoryOp<'a> {
    pub(crate) description: Option<Cow<'a, [u8]>>,
    initiated_at: Option<Cursor<'a>>,
    age: Option<Cursor<'a>>,
    duration: Option<Cursor<'a>>,
    /// Of a wanted op.
    pub(crate) data: Option<TypeData<'a>>,
}

/// The details of an op.
pub(crate) struct TypeData<'a> {
    pub(crate) address: Option<Cow<'a, [u8]>>,
    pub(crate) events: Option<Events<'a>>,
}

impl<'a> HistoryOp<'a> {
    /// Reads the object at the cursor; `is_wanted` judges its description.
    pub(crate) fn read(
        cursor: &mut Cursor<'a>,
        clock: &mut Clock,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Self, Bad> {
        let mut op = Self::default();
        let mut data_at = None;
        let mut members = cursor.object("an op is not an object")?;
        while let Some(key) = cursor.member(&mut members)? {
            match &*key {
                b"description" => op.description = Some(cursor.string("a description is not a string")?),
                b"type_data" => {
                    data_at = Some(*cursor);
                    if op.description.as_deref().is_some_and(&is_wanted) {
                        op.data = Some(TypeData::read(cursor, clock)?);
                    } else {
                        cursor.skip()?;
                    }
                }
                name => {
                    match name {
                        b"initiated_at" => op.initiated_at = Some(*cursor),
                        b"age" => op.age = Some(*cursor),
                        b"duration" => op.duration = Some(*cursor),
                        _ => {}
                    }
                    cursor.skip()?;
                }
            }
        }
        if op.data.is_none() && op.description.as_deref().is_some_and(is_wanted) {
            if let Some(mut place) = data_at {
                op.data = Some(TypeData::read(&mut place, clock)?);
            }
        }
        Ok(op)
    }

    /// When the OSD began with it, in nanoseconds since the Unix epoch.
    pub(crate) fn initiated_ns(&self, clock: &mut Clock) -> Result<Option<i64>, Bad> {
        self.initiated_at
            .map(|mut place| clock.read(&mut place))
            .transpose()
    }

    /// How long ago that was when the history was asked for.
    pub(crate) fn age_ns(&self) -> Result<Option<i64>, Bad> {
        seconds(self.age, "the age of an op is not a number")
    }

    /// How long it took, by what it says of itself.
    pub(crate) fn duration_ns(&self) -> Result<Option<i64>, Bad> {
        seconds(self.duration, "the duration of an op is not a number")
    }
}

/// Seconds as nanoseconds. Beyond 2^63 they are the limits.
fn seconds(place: Option<Cursor<'_>>, reason: &'static str) -> Result<Option<i64>, Bad> {
    let seconds = place.map(|mut place| place.number(reason)).transpose()?;
    Ok(seconds.map(|seconds| (seconds * 1e9) as i64))
}

impl<'a> TypeData<'a> {
    fn read(cursor: &mut Cursor<'a>, clock: &mut Clock) -> Result<Self, Bad> {
        let (mut address, mut events) = (None, None);
        let mut members = cursor.object("'type_data' is not an object")?;
        while let Some(key) = cursor.member(&mut members)? {
            match &*key {
                b"events" => events = Some(Events::read(cursor, clock)?),
                b"client_info" if cursor.peek()? == b'{' => address = address_in(cursor)?,
                _ => cursor.skip()?,
            }
        }
        Ok(Self { address, events })
    }
}

/// The address in `client_info`.
fn address_in<'a>(cursor: &mut Cursor<'a>) -> Result<Option<Cow<'a, [u8]>>, Bad> {
    let mut address = None;
    let mut members = cursor.object("'client_info' is not an object")?;
    while let Some(key) = cursor.member(&mut members)? {
        if *key == *b"client_addr" && cursor.peek()? == b'"' {
            address = Some(cursor.string("")?);
        } else {
            cursor.skip()?;
        }
    }
    Ok(address)
}
