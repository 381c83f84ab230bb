//! Counting of orphans: an answer is an orphan until its client sends to an address in it.

use memory::{Allocator, Distributed, Map, Memory, Vector};
use nf::Step;
use packet::{Host6, Nanos};

use super::state::{AnswerKey, Answered, Answers, Client, Peers, asked, told};
use super::{Block, Detector};

/// How many expired answers, and how many expired clients, each packet and each message of a stream reclaims. It adds one of each at most.
const RECLAIMED_EACH: usize = 2;

/// Time after its use for which further answers to a name count as used: a client that asks for both families may use the first
/// answer before the second comes.
const STILL_USED: Nanos = Nanos::from_secs(10);

/// The shared state, in the transaction of a step, and the packet's time.
pub(super) struct At<'x, 'a, M: Memory> {
    pub(super) shared: &'a Answers<M>,
    pub(super) tx: &'x mut M::Tx<'a>,
    pub(super) now: Nanos,
}

impl Detector {
    /// Returns the client's index and entry, a new one if needed; `None` if there is no room.
    fn client<M: Memory>(&self, at: &mut At<'_, '_, M>, name: Host6) -> Step<Option<(usize, Client)>, M> {
        let (shared, now, deadline) = (at.shared, at.now, at.now + self.config.keep());
        if let Some(place) = shared.by_name.get(at.tx, &name)? {
            let client = shared.clients.read(at.tx, place as usize)?;
            let client = if self.knows(&client, now) { client } else { client.anew(now) };
            let deadline = if client.is_named() { now + self.config.remembered() } else { deadline };
            shared.known.refresh(at.tx, place as usize, deadline)?;
            return Ok(Some((place as usize, client)));
        }
        let Some(place) = shared.known.allocate(at.tx, deadline)? else { return Ok(None) };
        if shared.by_name.insert(at.tx, name, place as u32)? {
            return Ok(Some((place, Client::new(name, now))));
        }
        shared.known.free(at.tx, place)?;
        Ok(None)
    }

    /// Returns true if the entry has not expired. Expired entries may exist for a while.
    pub(super) fn knows(&self, client: &Client, now: Nanos) -> bool {
        client.last + self.config.keep() > now
    }

    /// Records an answer to a client, with or without addresses.
    pub(super) fn answered<M: Memory>(
        &self,
        at: &mut At<'_, '_, M>,
        client: Host6,
        name: u32,
        peers: Option<&Peers>,
    ) -> Step<(), M> {
        let (shared, now) = (at.shared, at.now);
        let counts = peers.is_some() || self.config.without_address;
        let mut answer = Answered::new(client, name, now);
        for (peer, is_crossed) in peers.iter().flat_map(|peers| peers.each()) {
            answer.peers.add(peer, is_crossed);
        }
        let mut is_used = false;
        if counts && name != 0 {
            is_used = self.join(at, &mut answer)?;
        }
        // Of two answers with the same address only the later waits: a client that asks twice uses one.
        for (peer, is_crossed) in peers.iter().flat_map(|peers| peers.each()) {
            self.take_back(at, &told(client, peer, is_crossed))?;
        }
        let entry = self.client(at, client)?;
        let judged = match &entry {
            None => false,
            // Its answers would fill the table, and nothing more is to be learned from them.
            Some((_, client)) if client.is_tunnel => true,
            Some(_) if is_used || !counts || (name == 0 && peers.is_none()) => true,
            Some(_) => self.wait(at, &answer)?,
        };
        shared.totals.update(at.tx, |totals| {
            totals.answers += 1;
            totals.used += u64::from(is_used);
            totals.unjudged += u64::from(!judged);
        })?;
        let Some((place, mut client)) = entry else { return Ok(()) };
        let was_named = client.is_named();
        client.answered(now, peers.is_none());
        if judged && counts && !is_used {
            client.orphan(now, self.config.window.nanos(), self.config.threshold.get() as u32);
            if client.is_tunnel && !was_named {
                shared.known.refresh(at.tx, place, now + self.config.remembered())?;
            }
        }
        shared.clients.write(at.tx, place, client)
    }

    /// Joins the answer with the former one to the same name, if there is one. A former one that waits gives its addresses and is
    /// removed. Returns true if the former one was used a short while ago, so this one counts as used.
    fn join<M: Memory>(&self, at: &mut At<'_, '_, M>, answer: &mut Answered) -> Step<bool, M> {
        let key = asked(answer.client, answer.name);
        let Some(place) = at.shared.find(at.tx, &key)? else { return Ok(false) };
        let former = at.shared.answers.read(at.tx, place as usize)?;
        if former.is_used && former.at + STILL_USED > at.now {
            return Ok(true);
        }
        if !former.is_used && former.at + self.config.window.nanos() > at.now {
            former.peers.each().for_each(|(peer, is_crossed)| answer.peers.add(peer, is_crossed));
        }
        self.take_back(at, &key)?;
        Ok(false)
    }

    /// Stores an answer until its use. Returns false without a change if there is no room.
    fn wait<M: Memory>(&self, at: &mut At<'_, '_, M>, answer: &Answered) -> Step<bool, M> {
        let (shared, deadline) = (at.shared, at.now + self.config.window.nanos());
        let Some(place) = shared.waiting.allocate(at.tx, deadline)? else { return Ok(false) };
        shared.answers.write(at.tx, place, *answer)?;
        for key in answer.keys() {
            if !shared.link(at.tx, key, place)? {
                self.unlink(at, place, answer)?;
                shared.waiting.free(at.tx, place)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes the answer with this key, if there is one, and takes it out of its client's count of orphans.
    fn take_back<M: Memory>(&self, at: &mut At<'_, '_, M>, key: &AnswerKey) -> Step<Option<Answered>, M> {
        let shared = at.shared;
        let Some(place) = shared.find(at.tx, key)? else { return Ok(None) };
        let answer = shared.answers.read(at.tx, place as usize)?;
        self.unlink(at, place as usize, &answer)?;
        shared.waiting.free(at.tx, place as usize)?;
        if answer.is_used {
            return Ok(None);
        }
        if let Some(place) = shared.by_name.get(at.tx, &answer.client)? {
            let mut client = shared.clients.read(at.tx, place as usize)?;
            client.used(answer.at);
            shared.clients.write(at.tx, place as usize, client)?;
        }
        Ok(Some(answer))
    }

    /// Marks the answer with this key as used, if there is one. Its name is kept for [`STILL_USED`].
    #[inline]
    pub(super) fn used<M: Memory>(&self, at: &mut At<'_, '_, M>, key: &AnswerKey) -> Step<bool, M> {
        if at.shared.find(at.tx, key)?.is_none() {
            return Ok(false);
        }
        self.use_up(at, key)
    }

    #[cold]
    fn use_up<M: Memory>(&self, at: &mut At<'_, '_, M>, key: &AnswerKey) -> Step<bool, M> {
        let (shared, now) = (at.shared, at.now);
        let Some(answer) = self.take_back(at, key)? else { return Ok(false) };
        if answer.at + self.config.window.nanos() <= now {
            return Ok(false);
        }
        if answer.name != 0 {
            let used = Answered { is_used: true, ..Answered::new(answer.client, answer.name, now) };
            if let Some(place) = shared.waiting.allocate(at.tx, now + STILL_USED)? {
                shared.answers.write(at.tx, place, used)?;
                if !shared.link(at.tx, asked(used.client, used.name), place)? {
                    shared.waiting.free(at.tx, place)?;
                }
            }
        }
        Ok(true)
    }

    /// Removes all keys of the answer at this index.
    fn unlink<M: Memory>(&self, at: &mut At<'_, '_, M>, place: usize, answer: &Answered) -> Step<(), M> {
        for key in answer.keys() {
            at.shared.unlink(at.tx, &key, place)?;
        }
        Ok(())
    }

    /// Removes expired answers and clients.
    #[inline]
    pub(super) fn reclaim<M: Memory>(&self, at: &mut At<'_, '_, M>) -> Step<(), M> {
        let (shared, now) = (at.shared, at.now);
        for _ in 0..RECLAIMED_EACH {
            let Some(place) = shared.waiting.expire(at.tx, now)? else { break };
            let answer = shared.answers.read(at.tx, place)?;
            self.unlink(at, place, &answer)?;
        }
        for _ in 0..RECLAIMED_EACH {
            let Some(place) = shared.known.expire(at.tx, now)? else { break };
            let client = shared.clients.read(at.tx, place)?;
            shared.by_name.remove(at.tx, &client.name)?;
        }
        Ok(())
    }

    /// Returns true if a packet of this client is to be dropped, which is DNS or not: the client is suspected.
    #[inline]
    pub(super) fn is_blocked<M: Memory>(&self, at: &mut At<'_, '_, M>, name: Host6, is_dns: bool) -> Step<bool, M> {
        let concerned = match self.config.block {
            Block::Nothing => false,
            Block::Dns => is_dns,
            Block::All => true,
        };
        if !concerned {
            return Ok(false);
        }
        let Some(place) = at.shared.by_name.get(at.tx, &name)? else { return Ok(false) };
        let client = at.shared.clients.read(at.tx, place as usize)?;
        Ok(client.is_tunnel && self.knows(&client, at.now))
    }
}
