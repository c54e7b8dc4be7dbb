/* session_feed.h - finds out, in the first steps of a run for which --cache is not given, whether it ends
 * sooner if the images are decoded once (cache_choice.h), and does so then.
 *
 *   SessionFeed feed;
 *   session_feed_start(&feed, session, first_step);       // loader_start too
 *   while (…)
 *       if (session_feed_is_due(&feed, step))             // with no step under way
 *           session_feed_look(&feed, session, &now, &error);
 *       … a step …
 *       session_feed_note(&feed, step, seconds);
 *
 * It looks after 8 steps, 16, 32 and so on, until a second of training was measured: all ranks at the same
 * step. Only sources are taken whose batches are those of the loader byte for byte, and only if every image
 * can be decoded: a run's results do not depend on the choice, nor on when it is made.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_SESSION_SESSION_FEED_H
#define FSHARD_TRAINER_SESSION_SESSION_FEED_H

#include "trainer/session/session.h"

/* Where the run is, with what it did before this process began it. */
typedef struct FeedMoment {
    uint64_t steps_done;
    double step_seconds, wait_seconds; /* of the steps, and of them for data */
    double processor_seconds;          /* of all threads of this process */
} FeedMoment;

typedef struct SessionFeed {
    bool looks; /* nothing is decided yet */
    uint64_t first_step, next_look;
    FeedMoment before;     /* at the first look; steps_done 0: there was none yet */
    LoaderStatistics made; /* then */
    uint64_t alone_step;   /* that was begun behind the last look, with none under way */
    double alone_seconds;  /* the shortest of such steps; 0: none has ended */
} SessionFeed;

/* Begins to look, if the plan leaves it open. The run goes on with first_step. */
void session_feed_start(SessionFeed *feed, const Session *session, uint64_t first_step);

/* Returns the seconds that processors have spent on this process. */
double session_feed_processor_seconds(void);
/* Returns whether session_feed_look is to be called before this step begins. */
bool session_feed_is_due(const SessionFeed *feed, uint64_t step);
/* Returns whether no other step may be under way beside this one, for it is measured. */
bool session_feed_is_alone(const SessionFeed *feed, uint64_t step);
/* Takes note of the seconds that a step took, without waiting for data and without handing it to the device,
 * which happens beside the step before, or not at all once images lie in a GPU's memory. */
void session_feed_note(SessionFeed *feed, uint64_t step, double seconds);

/* Measures and decides. If decoding pays, decodes the splits and lets the loaders go on from there; what
 * cannot be done leaves the run as it is, and is told. Every rank calls it. Fails as loader_new, and
 * FSH_ERR_PEER. */
FshStatus session_feed_look(SessionFeed *feed, Session *session, const FeedMoment *now, FshError *error);

#endif
