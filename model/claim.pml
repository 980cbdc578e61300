/*
 * The claim and lease protocol of one key, for Spin.
 *
 * TOKENS requests with equal fingerprints, each with a claim token of its own, go through filters
 * that may crash anywhere, over a network that loses, delays and reorders every call and every
 * reply, to the one row that the store keeps. The upstream is a process of its own: it works on
 * after its filter has crashed or given up, and after the lease.
 *
 * Not modelled: several keys, fingerprints that differ, the lifetimes of answers and of unknown
 * outcomes (nothing is deleted), parking, the grace after an outage, operators. A restart of the
 * service loses what is under way and nothing else, so the losses of the network are its restarts.
 *
 * Time is what may have passed, not a number: `lease_over` and `run_over` become true at any
 * moment that the protocol's assumptions allow.
 *   - The filter's own look at its lease ends before the store's (G12 in GUARANTEES.md).
 *   - With RERUN, a run ends before its `run_until` (A6): the clock passes it only after the run.
 *     Under hold nothing is assumed: a run may last for ever.
 *
 * Checked at every step:
 *   - HOLD: at most one request is executed. RERUN: executions never overlap.
 *   - Fences reach the upstream in growing order.
 *   - A stored answer is one of a token that ran, and once a filter was told "stored", it stays.
 *   - A token that was given back never holds the key again.
 * And at the end of every history: no claim is left that nobody can end.
 * No check holds for want of histories: the tests name the few statements that none reaches, and why.
 *
 * Taking out a part of the protocol must make the checks fail, each in its own way:
 *   NO_TOKEN      finish, release and unknown go by the key alone
 *   NO_RUN_UNTIL  an equal request takes over as soon as the lease is over
 *   NO_TOMBSTONE  a release that finds nothing leaves nothing
 *   NO_SWEEP      nobody ends a held claim whose lease is over
 * `make model` runs them all.
 */

#ifndef TOKENS
#define TOKENS 2
#endif

#define NOBODY TOKENS

/* States of the row. */
#define ABSENT    0
#define CLAIMED   1
#define COMPLETED 2
#define RELEASED  3
#define UNKNOWN   4

/* What a claim call was told. */
#define NOTHING   0
#define GRANTED   1
#define REFUSED   2 /* in progress, unknown or dead: it is not executed */
#define REPLAYED  3

/* The row. */
byte state = ABSENT;
byte owner = NOBODY;    /* its token */
byte answer = NOBODY;   /* whose answer is stored */
byte fence = 0;
bool lease_over = false;
bool run_over = false;
bool dead[TOKENS];      /* tokens that the row remembers as given back */

/* The network: calls under way, and replies that have arrived. */
bool claim_call[TOKENS];
bool complete_call[TOKENS];
bool release_call[TOKENS];
bool unknown_call[TOKENS];
bool renew_call[TOKENS];
byte claim_reply[TOKENS];
byte fence_reply[TOKENS];
bool duty_reply[TOKENS];

/* What only the checker knows. */
bool running[TOKENS];   /* the upstream works on it now */
bool answered[TOKENS];  /* the upstream has finished it */
bool ran[TOKENS];       /* it was ever executed */
bool expired[TOKENS];   /* the lease of this token's claim is over */
bool gone[TOKENS];      /* its filter has ended or crashed */
bool given_back[TOKENS]; /* its filter was told that it is released */
byte fence_seen = 0;    /* greatest that the upstream saw */
byte confirmed = NOBODY; /* whose filter was told that its answer is stored */

#ifdef NO_TOKEN
#define OWN(t) true
#else
#define OWN(t) (owner == t)
#endif

#ifdef NO_RUN_UNTIL
#define MAY_TAKE_OVER lease_over
#else
#define MAY_TAKE_OVER (lease_over && run_over)
#endif

/* Must hold after every change of the row. */
inline check_row() {
    assert(confirmed == NOBODY || (state == COMPLETED && answer == confirmed));
    assert(state != COMPLETED || ran[answer])
}

inline fresh(t) {
    if
    :: dead[t] -> claim_reply[t] = REFUSED
    :: else ->
        if
        :: owner != NOBODY && owner != t && (state == RELEASED || state == CLAIMED) -> dead[owner] = true
        :: else
        fi;
        state = CLAIMED; owner = t; fence++;
        assert(!given_back[t]);
        lease_over = false; run_over = false; expired[t] = false;
        claim_reply[t] = GRANTED; fence_reply[t] = fence
    fi
}

/* One statement each, as in `store-service/src/entry`. */
inline do_claim(t) {
    if
    :: state == ABSENT -> fresh(t)
    :: state == RELEASED && owner == t -> claim_reply[t] = REFUSED
    :: state == RELEASED && owner != t -> fresh(t)
    :: state == CLAIMED && owner == t ->
        lease_over = false; run_over = false; expired[t] = false;
        claim_reply[t] = GRANTED; fence_reply[t] = fence
    :: state == CLAIMED && owner != t && !lease_over -> claim_reply[t] = REFUSED
#ifdef RERUN
    :: state == CLAIMED && owner != t && lease_over && MAY_TAKE_OVER -> fresh(t)
    :: state == CLAIMED && owner != t && lease_over && !(MAY_TAKE_OVER) -> claim_reply[t] = REFUSED
#else
    :: state == CLAIMED && owner != t && lease_over -> state = UNKNOWN; claim_reply[t] = REFUSED
#endif
    :: state == COMPLETED -> claim_reply[t] = REPLAYED
    :: state == UNKNOWN -> claim_reply[t] = REFUSED
    fi
}

inline do_complete(t, told) {
    told = false;
    if
    :: state == ABSENT || state == RELEASED ->
        state = COMPLETED; owner = t; answer = t; told = true
    :: (state == CLAIMED || state == UNKNOWN) && OWN(t) ->
        state = COMPLETED; owner = t; answer = t; told = true
#ifdef NO_TOKEN
    :: state == COMPLETED -> answer = t; told = true
#else
    :: state == COMPLETED && owner == t -> told = true
#endif
    :: else /* held, finished or unknown by another token: refused, and the filter says `lost` */
    fi
}

inline do_release(t) {
    if
#ifdef NO_TOMBSTONE
    :: state == ABSENT
#else
    :: state == ABSENT -> state = RELEASED; owner = t
#endif
    :: state == CLAIMED && OWN(t) -> state = RELEASED; owner = t
    :: state == CLAIMED && !OWN(t) -> dead[t] = true
    :: state == RELEASED && owner != t -> dead[t] = true
    :: else
    fi
}

inline do_unknown(t) {
    if
#ifdef RERUN
    :: state == CLAIMED && OWN(t) -> lease_over = true; expired[t] = true
#else
    :: state == CLAIMED && OWN(t) -> state = UNKNOWN
#endif
    :: else
    fi
}

inline do_renew(t) {
    if
    :: state == CLAIMED && OWN(t) -> lease_over = false; run_over = false; expired[t] = false
    :: else
    fi
}

/* Carries the calls of one token: in any order, any number of times of those that are repeated,
 * and each may be lost, or its reply. */
proctype Wire(byte t) {
    bool told;
end:
    do
    :: atomic { claim_call[t] -> claim_call[t] = false;
        if
        :: do_claim(t); check_row();
            if
            :: !gone[t]                        /* the reply arrives */
            :: claim_reply[t] = NOTHING; fence_reply[t] = 0 /* or not */
            fi
        :: true                                /* the call is lost */
        fi }
    :: atomic { complete_call[t] -> complete_call[t] = false;
        if
        :: do_complete(t, told);
            if
            :: told && !gone[t] -> duty_reply[t] = true;
                if
                :: confirmed == NOBODY -> confirmed = t
                :: else
                fi
            :: !told && !gone[t] -> duty_reply[t] = true
            :: true                            /* no reply */
            fi;
            check_row(); told = false
        :: true
        fi }
    :: atomic { release_call[t] -> release_call[t] = false;
        if
        :: do_release(t); check_row();
            if
            :: !gone[t] -> duty_reply[t] = true
            :: true
            fi
        :: true
        fi }
    :: atomic { renew_call[t] -> renew_call[t] = false;
        if
        :: do_renew(t)
        :: true
        fi }
    :: atomic { unknown_call[t] -> unknown_call[t] = false;
        if
        :: do_unknown(t); check_row()
        :: true
        fi }
    od
}

/* The upstream at work on the request of one token. It may take any time. */
proctype Upstream(byte t) {
end:
    atomic { running[t] -> running[t] = false; answered[t] = true }
}

inline forward(t) {
    /* The promise: what is forwarded now is the only one, or the only one at work. */
    d_step {
        byte other = 0;
        do
        :: other < TOKENS ->
#ifdef RERUN
            assert(!running[other]);
#else
            assert(!ran[other]);
#endif
            other++
        :: else -> break
        od;
        other = 0;
        assert(fence_reply[t] > fence_seen);
        fence_seen = fence_reply[t];
        ran[t] = true; running[t] = true
    }
}

/* One guarded request. Steps that nobody else sees are taken together. */
proctype Filter(byte t) {
    byte tries = 0;
    claim_call[t] = true;
    do
    /* The reply. What the filter takes for a lease that lasts is one: it looks at an earlier end. */
    :: atomic { claim_reply[t] == GRANTED && !expired[t] ->
        if
        :: forward(t); tries = 0; break
        :: goto give_back                      /* certainly not run: the connection is refused */
        fi }
    :: atomic { claim_reply[t] == GRANTED && expired[t] -> goto give_back }
    :: atomic { claim_reply[t] == REFUSED || claim_reply[t] == REPLAYED -> goto over }
    :: atomic { tries == 0 && !claim_call[t] && claim_reply[t] == NOTHING ->
        tries++; claim_call[t] = true }        /* one repetition */
    :: goto give_back                          /* no answer in time */
    :: goto over                               /* a crash */
    od;
    do
    :: atomic { answered[t] -> goto store_answer }
    :: atomic { tries < 1 -> tries++; renew_call[t] = true }
    :: atomic { unknown_call[t] = true; break } /* it takes too long, or the client hangs up */
    :: goto over                               /* a crash */
    od;
    if
    :: atomic { answered[t] -> goto store_answer } /* the answer comes after all */
    :: goto over
    fi;
store_answer:
    atomic { tries = 0; complete_call[t] = true };
    do
    :: atomic { duty_reply[t] -> goto over }
    :: atomic { tries == 0 && !complete_call[t] -> tries++; complete_call[t] = true }
    :: goto over
    od;
give_back:
    atomic { tries = 0; release_call[t] = true };
    do
    :: atomic { duty_reply[t] -> given_back[t] = true; goto over }
    :: atomic { tries == 0 && !release_call[t] -> tries++; release_call[t] = true }
    :: goto over
    od;
over:
    /* Nobody looks at these any more. */
    atomic { tries = 0; gone[t] = true; claim_reply[t] = NOTHING; fence_reply[t] = 0; duty_reply[t] = false }
}

/* Time passes whenever it may. */
proctype Clock() {
end:
    do
    :: atomic { state == CLAIMED && !lease_over -> lease_over = true; expired[owner] = true }
#ifdef RERUN
    :: atomic { state == CLAIMED && lease_over && !run_over && !running[owner] -> run_over = true }
#endif
    od
}

#if !defined(RERUN) && !defined(NO_SWEEP)
/* The sweeper of any instance. */
proctype Sweeper() {
end:
    do
    :: atomic { state == CLAIMED && lease_over -> state = UNKNOWN }
    od
}
#endif

init {
    byte t = 0;
    atomic {
        do
        :: t < TOKENS -> run Wire(t); run Upstream(t); run Filter(t); t++
        :: else -> break
        od;
        run Clock();
#if !defined(RERUN) && !defined(NO_SWEEP)
        run Sweeper()
#endif
    }
    /* Nothing can happen any more. */
    timeout ->
#ifdef RERUN
    assert(state != CLAIMED || (lease_over && run_over))
#else
    assert(state != CLAIMED)
#endif
}
