//! Bytes that a function holds until more follow.

use memory::Memory;
use nf::Step;
use stream::{End, Gap};

use super::conversation::Call;
use super::{Direction, HELD_MAX, Said, SharedStreamFunction, Streams};

impl<F: SharedStreamFunction> Streams<F> {
    /// Tells a function that may hold bytes. Bytes that it held before are told again, with what follows.
    pub(super) fn tell_held<M: Memory>(
        &self,
        call: &mut Call<'_, '_, '_, '_, F, M>,
        from: Direction,
        said: Said<'_>,
    ) -> Step<(), M> {
        let Said::Data(_, mut bytes) = said else {
            self.hear(call, said, 0)?;
            if matches!(said, Said::Gap(..) | Said::End(_)) {
                call.keeper.forget(from);
            }
            return Ok(());
        };
        while !bytes.is_empty() && !call.cx.wishes.enough[from as usize] {
            let held = call.keeper.held(from);
            if held == 0 {
                let count = self.hear(call, Said::Data(from, bytes), 0)?;
                return self.hold(call, from, &bytes[bytes.len() - count..]);
            }
            let mut buffer = [0; HELD_MAX];
            let room = bytes.len().min(F::HOLDS - held);
            call.keeper.read(from, &mut buffer);
            buffer[held..held + room].copy_from_slice(&bytes[..room]);
            let told = &buffer[..held + room];
            let count = self.hear(call, Said::Data(from, told), held)?;
            if count > room && count < told.len() {
                // It has taken a part of what it held.
                call.keeper.forget(from);
                self.hold(call, from, &told[told.len() - count..])?;
                bytes = &bytes[room..];
            } else if count == told.len() {
                self.hold(call, from, &bytes[..room])?;
                bytes = &bytes[room..];
            } else {
                call.keeper.forget(from);
                bytes = &bytes[room - count..];
                if count > 0 && bytes.len() == count {
                    return self.hold(call, from, bytes);
                }
            }
        }
        Ok(())
    }

    /// Calls the function. Returns how many of the last bytes it holds.
    fn hear<M: Memory>(&self, call: &mut Call<'_, '_, '_, '_, F, M>, said: Said<'_>, held: usize) -> Step<usize, M> {
        (call.cx.held, call.cx.hold) = (held, 0);
        self.function.hear(&mut call.cx, &mut call.access, call.own, said)?;
        let told = if let Said::Data(_, bytes) = said { bytes.len() } else { 0 };
        Ok(if call.cx.hold < F::HOLDS { call.cx.hold.min(told) } else { 0 })
    }

    /// Holds further bytes. Without memory for them, all that is held is a gap.
    fn hold<M: Memory>(&self, call: &mut Call<'_, '_, '_, '_, F, M>, from: Direction, bytes: &[u8]) -> Step<(), M> {
        if bytes.is_empty() || call.cx.wishes.enough[from as usize] {
            return Ok(());
        }
        // The pool is not part of the transaction.
        M::irrevocable(call.access.tx)?;
        let held = call.keeper.held(from) + bytes.len();
        if !call.keeper.hold(from, bytes) {
            self.hear(call, Said::Gap(from, Gap { len: held as u32, end: End::OutOfMemory }), 0)?;
        }
        Ok(())
    }
}
