/* Loss recovery of state-compute replication for spin, as crates/engine/src/history/recovery does it.
 *
 * Three cores get PACKETS packets in turn, each with the records of the three packets up to it; any may be lost. After each
 * BURST all cores hear how far the sequencer is; it waits for the slowest once that one is WINDOW packets behind. Each core
 * logs its packets in SLOTS slots. Over all schedules:
 *   - nobody waits for ever: no invalid end state;
 *   - agreement and atomicity: a record is applied by all cores that come to it or by none, and by none only when nobody
 *     received it and kept its place (`apply`);
 *   - no entry is written over that a core in its place may still read (`look_into`);
 *   - who is fenced waits for nobody (`fence_stalled`).
 *
 * FENCES    how many cores may be fenced: whoever waits may lose its patience at any moment
 * STALL     a core that may stop for ever between any two of its steps
 *
 * The mutants NO_ROOM, BLIND_MARK, EAGER, APPLIES_FIRST, UNCHECKED, each of which must fail, leave out one thing each.
 */

#define CORES 3
#ifndef PACKETS
#define PACKETS 5
#endif
#ifndef BURST
#define BURST 3
#endif
#ifndef WINDOW
#define WINDOW 255
#endif
#ifndef SLOTS
#define SLOTS 1
#endif
#ifndef FENCES
#define FENCES 0
#endif
#define NOBODY 9
#ifndef STALL
#define STALL NOBODY
#endif

#define PACKET(c, t) ((t) * CORES + (c))
/* The turn of core c's one packet that carries record i: the first that isn't below it. */
#define CARRIER(c, i) (((i) + CORES - 1 - (c)) / CORES)
#define SLOT(c, t) ((c) * SLOTS + (t) % SLOTS)

/* What cores see of each other: how many turns each has settled, whether that is final, the record that it applies next, and
 * of each slot whether its packet was received. */
byte turns[CORES];
bool fenced[CORES];
bool gone[CORES];
byte progress[CORES];
bool received[CORES * SLOTS];

/* What the checker alone sees: the turn that is in each slot, the packets that came, what became of each record, how far each
 * core has come, and the record that each waits for others to pass or to decide on (one more than that, 0 for none). */
byte in_slot[CORES * SLOTS];
bool came[PACKETS];
byte outcome[PACKETS];
byte through[CORES];
byte wants_passed[CORES];
byte wants_decided[CORES];
byte fences;
bool stopped;

#define APPLIED 1
#define NOWHERE 2

#define FINAL(c) (fenced[c] || gone[c])

/* Whether core c need not read record i any more, for core m. */
#define PASSED(m, c, i) (c == m || FINAL(c) || progress[c] > (i))
#define ALL_PASSED(m, i) (PASSED(m, 0, i) && PASSED(m, 1, i) && PASSED(m, 2, i))

/* Whether core c has said what it has of record i, and won't say more, for core m. */
#define SAID(m, c, i) (c == m || FINAL(c) || turns[c] > CARRIER(c, i))
#define HAS(m, c, i) (c != m && turns[c] > CARRIER(c, i) && received[SLOT(c, CARRIER(c, i))])
#define DECIDED(m, i) \
    (SAID(m, 0, i) && SAID(m, 1, i) && SAID(m, 2, i) || HAS(m, 0, i) || HAS(m, 1, i) || HAS(m, 2, i))

/* Whether core m waits and can't go on as things are. */
#define STUCK(m) \
    (wants_passed[m] && !ALL_PASSED(m, wants_passed[m] - 1) || wants_decided[m] && !DECIDED(m, wants_decided[m] - 1))

#define REACHED(c, n) (FINAL(c) || through[c] + WINDOW >= n)

inline apply(i, how) {
    d_step {
        assert(outcome[i] == 0 || outcome[i] == how);
        outcome[i] = how;
        assert(how == NOWHERE || came[i] || (i + 1 < PACKETS && came[i + 1]) || (i + 2 < PACKETS && came[i + 2]))
    }
}

/* Reads whether core c's packet of this turn was received. A fenced core may find something else, and throws it away. */
inline look_into(c, t, there) {
    d_step {
#ifndef UNCHECKED
        assert(fenced[me] || in_slot[SLOT(c, t)] == t);
#else
        assert(in_slot[SLOT(c, t)] == t);
#endif
        there = received[SLOT(c, t)]
    }
}

#define SILENT(c) (c != me && !FINAL(c) && turns[c] <= CARRIER(c, least))
#define LAST(c) (c != me && !FINAL(c) && progress[c] <= least)

/* Logs::suspect and Logs::fence_off: whoever is last waits for those that haven't said whether they have its record; when all
 * have, it could go on itself. */
inline fence_stalled() {
    d_step {
        least = 255;
        if :: !FINAL(0) && progress[0] < least -> least = progress[0] :: else fi;
        if :: !FINAL(1) && progress[1] < least -> least = progress[1] :: else fi;
        if :: !FINAL(2) && progress[2] < least -> least = progress[2] :: else fi;
        if
        :: SILENT(0) -> stalled = 0
        :: SILENT(1) -> stalled = 1
        :: SILENT(2) -> stalled = 2
        :: else ->
            if
            :: LAST(0) -> stalled = 0
            :: LAST(1) -> stalled = 1
            :: LAST(2) -> stalled = 2
            :: else -> assert(false)
            fi
        fi;
        assert(!STUCK(stalled));
        fenced[stalled] = true;
        fences = (fences < FENCES -> fences + 1 : fences);
        stalled = 0;
        least = 0
    }
}

#define MAY_STALL if :: me == STALL -> goto end_stalled :: true fi

/* Waits until others have passed, or have decided on, record i; may fence who is in the way. */
inline wait_for(wants, i) {
    wants = i + 1;
    do
    :: atomic { fenced[me] -> wants = 0; goto out }
    :: atomic { !fenced[me] && !STUCK(me) -> wants = 0; break }
    :: atomic { !fenced[me] && STUCK(me) && (fences < FENCES || stopped) -> fence_stalled() }
    od
}

inline publish() {
    atomic {
        if
#ifdef BLIND_MARK
        :: fenced[me] -> fenced[me] = false; turns[me] = turn
#else
        :: fenced[me] -> goto out
#endif
        :: else -> turns[me] = turn
        fi
    }
}

proctype core(byte me) {
    byte sent = 0, turn = 0, at = 0, next = 0, asked, least, stalled;
    bool mine, there, said, open;

    do
    :: sent < PACKETS ->
        /* The next burst, or the heartbeat that tells of it. */
        atomic {
            REACHED(0, sent + BURST) && REACHED(1, sent + BURST) && REACHED(2, sent + BURST) || FINAL(me);
            sent = (sent + BURST < PACKETS -> sent + BURST : PACKETS)
        }
work:   do
        :: PACKET(me, turn) < sent && (turn < SLOTS || next > PACKET(me, turn - SLOTS)) ->
            /* The next of the core's packets goes into the log, once nobody needs what is there. */
#ifndef NO_ROOM
            if
            :: turn < SLOTS
            :: turn >= SLOTS && ALL_PASSED(me, PACKET(me, turn - SLOTS))
            :: turn >= SLOTS && !ALL_PASSED(me, PACKET(me, turn - SLOTS)) ->
                /* First what the others may be waiting for. */
                if :: turns[me] < turn || progress[me] < next -> break :: else fi;
                wait_for(wants_passed[me], PACKET(me, turn - SLOTS))
            fi;
#endif
            MAY_STALL;
            atomic {
                in_slot[SLOT(me, turn)] = turn;
                if
                :: PACKET(me, turn) < PACKETS -> received[SLOT(me, turn)] = true; came[PACKET(me, turn)] = true
                :: received[SLOT(me, turn)] = false
                fi;
                turn++
            }
        :: else -> break
        od;
        MAY_STALL;
#ifndef APPLIES_FIRST
        publish();
#endif
        do
        :: at < turn && next <= PACKET(me, at) && next < PACKETS ->
            MAY_STALL;
            look_into(me, at, mine);
            if
            :: mine -> apply(next, APPLIED)
#ifndef EAGER
            :: !mine && next + CORES > sent -> break
            :: !mine && next + CORES <= sent ->
#else
            :: !mine ->
#endif
                /* Recovery: the others are asked one after the other, until one has it or all have said that they don't. */
ask:            progress[me] = next;
                wait_for(wants_decided[me], next);
                asked = 0;
                open = false;
                there = false;
                do
                :: asked < CORES && asked != me && !there ->
                    atomic {
                        said = turns[asked] > CARRIER(asked, next);
                        open = open || (!said && !FINAL(asked))
                    }
                    if :: said -> look_into(asked, CARRIER(asked, next), there) :: else fi;
                    asked++
                :: asked < CORES && asked == me -> asked++
                :: asked == CORES || there -> break
                od;
#ifndef UNCHECKED
                if :: fenced[me] -> goto out :: else fi;
#endif
                MAY_STALL;
                if
                :: there -> apply(next, APPLIED)
                :: !there && !open -> apply(next, NOWHERE)
                :: !there && open -> goto ask
                fi
            fi;
            next++
        :: at < turn && next > PACKET(me, at) -> at++
        :: else -> break
        od;
        progress[me] = next;
#ifdef APPLIES_FIRST
        publish();
#endif
        if
        :: PACKET(me, turn) < sent -> goto work
        :: else -> through[me] = sent
        fi
    :: sent == PACKETS ->
        /* The end: the last records would have come once more, in packets that are as good as lost. */
        sent = PACKETS + CORES - 1;
        goto work
    :: sent > PACKETS -> break
    od;
    assert(next == PACKETS);
out:
    gone[me] = true;
    goto left;
end_stalled:
    stopped = true;
end_stopped:
    false;
left:
    skip
}

init {
    atomic {
        run core(0);
        run core(1);
        run core(2)
    }
}
