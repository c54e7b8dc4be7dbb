#include "tools/pack/pack_budget.h"

void budget_init(Budget *budget, uint64_t most_bytes)
{
    *budget = (Budget){.most = most_bytes};
    (void)pthread_mutex_init(&budget->lock, NULL);
    (void)pthread_cond_init(&budget->given, NULL);
}

void budget_destroy(Budget *budget)
{
    (void)pthread_cond_destroy(&budget->given);
    (void)pthread_mutex_destroy(&budget->lock);
}

static bool fits(const Budget *budget, uint64_t item, uint64_t bytes)
{
    return budget->open || item == budget->head ||
           (budget->taken <= budget->most && bytes <= budget->most - budget->taken);
}

void budget_take(Budget *budget, uint64_t item, uint64_t bytes)
{
    (void)pthread_mutex_lock(&budget->lock);
    while (!fits(budget, item, bytes))
        (void)pthread_cond_wait(&budget->given, &budget->lock);
    budget->taken += bytes;
    (void)pthread_mutex_unlock(&budget->lock);
}

void budget_give(Budget *budget, uint64_t item, uint64_t bytes)
{
    (void)pthread_mutex_lock(&budget->lock);
    budget->taken -= bytes;
    budget->head = item + 1;
    (void)pthread_cond_broadcast(&budget->given);
    (void)pthread_mutex_unlock(&budget->lock);
}

void budget_open(Budget *budget)
{
    (void)pthread_mutex_lock(&budget->lock);
    budget->open = true;
    (void)pthread_cond_broadcast(&budget->given);
    (void)pthread_mutex_unlock(&budget->lock);
}
