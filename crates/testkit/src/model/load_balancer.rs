//! The model of `load-balancer`, of one TCP service.

use std::collections::HashMap;

use nf::Verdict;
use packet::{Endpoint, Headers, Nanos, Rewrite, TcpFlags, Transport};

/// Which backend the table gives a client is nothing that a naive model knows, so it is told; it knows which others are right, and
/// checks verdicts instead of making them.
#[derive(Clone, Debug)]
pub struct LoadBalancerModel {
    service: Endpoint,
    backends: Vec<Endpoint>,
    down_after: u32,
    /// Seconds: to answer, until a trial, of a connection that opens or closes, of an open one.
    times: [u64; 4],
    clients: HashMap<Endpoint, Client>,
    /// Failures in a row of each backend, and when it is tried again.
    health: Vec<(u32, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    backend: usize,
    stage: Stage,
    deadline: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asked,
    Answered,
    Talking,
    Leaving,
}

impl LoadBalancerModel {
    /// A model of these parameters, times as in the configuration file: `answer_timeout`, `retry_after`, `transitory_timeout`,
    /// `idle_timeout`.
    #[must_use]
    pub fn new(service: Endpoint, backends: &[Endpoint], down_after: u32, times: [u64; 4]) -> Self {
        let health = vec![(0, 0); backends.len()];
        Self { service, backends: backends.to_vec(), down_after, times, clients: HashMap::new(), health }
    }

    /// Whether the verdict on a packet is right, given the backend that the table has for its client.
    ///
    /// # Errors
    /// What would have been right.
    pub fn check(&mut self, now: Nanos, headers: &Headers, tables: Endpoint, got: Verdict) -> Result<(), String> {
        let (Transport::Tcp(tcp), Some(tuple)) = (headers.transport, headers.five_tuple()) else {
            return expect(&got, &Verdict::FORWARD);
        };
        let (source, destination) = (tuple.source(), tuple.destination());
        let sender = self.backends.iter().position(|backend| *backend == source);
        if destination != self.service && sender.is_none() {
            return expect(&got, &Verdict::FORWARD);
        }
        self.end_those_due(now.0);
        let [rst, syn, fin] = [TcpFlags::RST, TcpFlags::SYN, TcpFlags::FIN].map(|flag| tcp.flags.contains(flag));
        let asks = syn && !rst;
        let ends = rst || (fin && !syn);
        let after = |secs: u64| now.0 + secs * 1_000_000_000;
        let [answer, _, transitory, idle] = self.times;
        if destination == self.service {
            let known = self.clients.get(&source).copied();
            let anew = known.is_none_or(|client| client.stage == Stage::Leaving && asks);
            let mut client = match known {
                Some(client) if !anew => client,
                _ => {
                    let backend = self.judge(now.0, tables, &got)?;
                    let stage = if asks && self.down_after > 0 { Stage::Asked } else { Stage::Talking };
                    Client { backend, stage, deadline: after(answer) }
                }
            };
            if client.stage == Stage::Asked && !asks {
                // Whoever goes on has been answered, unless it gives up.
                if !ends {
                    self.health[client.backend] = (0, 0);
                }
                client.stage = Stage::Talking;
            }
            if client.stage == Stage::Answered && !asks {
                client.stage = Stage::Talking;
            }
            if ends {
                client.stage = Stage::Leaving;
            }
            client.deadline = match client.stage {
                Stage::Asked => client.deadline,
                Stage::Answered | Stage::Leaving => after(transitory),
                Stage::Talking => after(idle),
            };
            self.clients.insert(source, client);
            let dst = Some(self.backends[client.backend]);
            return expect(&got, &Verdict::rewritten(Rewrite { dst, ..Rewrite::NONE }));
        }
        let Some(client) = self.clients.get_mut(&destination).filter(|client| Some(client.backend) == sender) else {
            return expect(&got, &Verdict::FORWARD);
        };
        if client.stage == Stage::Asked && rst {
            let backend = client.backend;
            self.clients.remove(&destination);
            self.fail(backend, now.0);
        } else {
            match client.stage {
                Stage::Asked => {
                    client.stage = Stage::Answered;
                    self.health[client.backend] = (0, 0);
                }
                Stage::Answered | Stage::Talking if ends => client.stage = Stage::Leaving,
                Stage::Answered | Stage::Talking | Stage::Leaving => {}
            }
            client.deadline = after(if client.stage == Stage::Talking { idle } else { transitory });
        }
        expect(&got, &Verdict::rewritten(Rewrite { src: Some(self.service), ..Rewrite::NONE }))
    }

    /// The backend that a new connection got, if it is one that it may get.
    fn judge(&mut self, now: u64, tables: Endpoint, got: &Verdict) -> Result<usize, String> {
        let Verdict::Rewrite { rewrite: Rewrite { dst: Some(dst), .. }, .. } = got else {
            return Err(String::from("a backend"));
        };
        let place = |endpoint: &Endpoint| self.backends.iter().position(|backend| backend == endpoint);
        let (Some(chosen), Some(first)) = (place(dst), place(&tables)) else {
            return Err(String::from("one of the backends"));
        };
        let is_down = |backend: usize| {
            let (failures, until) = self.health[backend];
            self.down_after > 0 && failures >= self.down_after && now < until
        };
        let all_down = (0..self.backends.len()).all(is_down);
        if (all_down || !is_down(first)) && chosen != first {
            return Err(format!("the table's, {tables}"));
        }
        if !all_down && is_down(chosen) {
            return Err(String::from("a backend that is not down"));
        }
        if self.down_after > 0 && self.health[chosen].0 >= self.down_after && !all_down {
            self.health[chosen].1 = now + self.times[1] * 1_000_000_000;
        }
        Ok(chosen)
    }

    fn end_those_due(&mut self, now: u64) {
        let due: Vec<Endpoint> =
            self.clients.iter().filter(|(_, client)| client.deadline <= now).map(|(name, _)| *name).collect();
        for name in due {
            let client = self.clients.remove(&name).expect("it was there");
            if client.stage == Stage::Asked {
                self.fail(client.backend, now);
            }
        }
    }

    fn fail(&mut self, backend: usize, now: u64) {
        let (failures, until) = &mut self.health[backend];
        *failures += 1;
        if *failures >= self.down_after {
            *until = now + self.times[1] * 1_000_000_000;
        }
    }
}

fn expect(got: &Verdict, right: &Verdict) -> Result<(), String> {
    if got == right { Ok(()) } else { Err(format!("{right:?}")) }
}
