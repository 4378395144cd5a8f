import random
from dataclasses import replace
from statistics import fmean

import pytest

from benchmarks.scale_model import (
    Batches,
    Cluster,
    Load,
    RequestCosts,
    Resource,
    RolloutCosts,
    ServiceCosts,
    Simulation,
    fitted_costs,
    fitted_further,
    simulate_rollouts,
    simulate_service,
)

FREE = RolloutCosts(**dict.fromkeys(RolloutCosts.__dataclass_fields__, 0.0))


def test_resource_is_held_in_order_of_arrival():
    simulation = Simulation()
    resource = Resource(simulation, 1)
    ended_s = []

    def hold(seconds):
        yield from simulation.use(seconds, resource)
        ended_s.append(simulation.now_s)

    for seconds in (3.0, 1.0, 2.0):
        simulation.start(hold(seconds))
    simulation.run()
    assert ended_s == [3.0, 4.0, 6.0]
    assert resource.busy_s == 6.0


def test_two_units_serve_two_processes_at_once():
    simulation = Simulation()
    resource = Resource(simulation, 2)
    for _ in range(4):
        simulation.start(simulation.use(1.0, resource))
    simulation.run()
    assert simulation.now_s == 2.0


def test_one_worker_takes_the_sum_of_its_costs():
    costs = replace(
        FREE,
        vector_step_s=0.01,
        env_step_s=0.002,
        policy_call_s=0.003,
        policy_row_s=0.001,
        noise_row_s=0.0005,
        put_s=0.1,
        task_s=0.2,
        latency_s=0.3,
        send_byte_s=0.01,
        receive_byte_s=0.02,
        join_step_s=0.004,
        update_step_s=0.005,
        policy_bytes=50,
        step_bytes=2,
        env_bytes=3,
    )
    # 10 steps of 4 environments; 12 bytes of states and 80 of steps.
    rollout_s = 10 * (0.01 + 4 * 0.002 + 0.003 + 4 * 0.001 + 4 * 0.0005)
    link_s = (50 + 12) * 0.01 + (80 + 12) * 0.02
    all_s = 0.1 + 0.2 + 0.3 + rollout_s + link_s + 40 * (0.004 + 0.005)
    result = simulate_rollouts(Cluster(1, num_envs=4, num_steps=10), costs, num_updates=1)
    assert 40 / result.steps_per_second == pytest.approx(all_s)
    assert result.bytes_per_second * all_s == pytest.approx(154, rel=1e-3)
    assert result.busy["workers"] == pytest.approx(rollout_s / all_s, rel=1e-3)


def test_two_workers_share_the_link_but_step_at_the_same_time():
    costs = replace(FREE, env_step_s=0.5, receive_byte_s=1.0, step_bytes=0.1)
    # Each has 2 environments for 1 s and 2 of 10 steps, then 2 bytes over the same link.
    result = simulate_rollouts(Cluster(2, num_envs=4, num_steps=10), costs, num_updates=1)
    assert 40 / result.steps_per_second == pytest.approx(10.0 + 2.0 + 2.0)
    assert result.busy["link"] == pytest.approx(4 / 14, rel=1e-3)


def test_local_worker_uses_no_link():
    costs = replace(FREE, env_step_s=0.5, receive_byte_s=1.0, step_bytes=0.1)
    cluster = Cluster(2, num_envs=4, num_steps=10, num_local=1)
    assert 40 / simulate_rollouts(cluster, costs, 1).steps_per_second == pytest.approx(12)


def test_processes_of_ray_slow_computation_down_but_not_without_a_cluster():
    costs = replace(FREE, env_step_s=0.5, update_step_s=0.1, ray_cores=0.5)
    # 10 steps of 4 environments and an update: 20 + 4 s.
    cluster = Cluster(1, num_envs=4, num_steps=10)
    assert 40 / simulate_rollouts(cluster, costs, 1).steps_per_second == pytest.approx(48)
    alone = replace(cluster, is_in_process=True)
    assert 40 / simulate_rollouts(alone, costs, 1).steps_per_second == pytest.approx(24)


def test_small_shard_still_computes_a_block_of_policy_rows():
    costs = replace(FREE, policy_row_s=1.0)
    assert costs.rollout_s(num_envs=1000, shard_envs=1, num_steps=1, num_cores=1) == 64
    assert costs.rollout_s(num_envs=1000, shard_envs=65, num_steps=1, num_cores=1) == 128
    assert costs.rollout_s(num_envs=32, shard_envs=1, num_steps=1, num_cores=1) == 32


def test_efficiency_falls_with_workers_as_the_update_stays():
    costs = replace(FREE, env_step_s=1e-4, update_step_s=1e-5)
    paces = [simulate_rollouts(Cluster(k, 64 * k, 10), costs).steps_per_second for k in (1, 10)]
    # 640 us of a worker's steps for each 64 * k * 10 us of the learner.
    assert paces[0] == pytest.approx(1 / (1e-4 + 1e-5), rel=0.01)
    assert paces[1] == pytest.approx(1 / (1e-4 / 10 + 1e-5), rel=0.01)


NOTHING = RequestCosts(0.0, 0.0, 0.0)


def service_costs(**changes):
    return replace(ServiceCosts(0.0, 0.0, NOTHING, NOTHING, NOTHING, further=1.0), **changes)


def test_idle_service_takes_the_sum_of_the_costs_of_a_request():
    costs = service_costs(
        client_s=0.001,
        loop_s=0.002,
        look_up=RequestCosts(0.0001, 0.0002, 0.0003),
        claim=RequestCosts(0.003, 0.004, 0.005),
        answer=RequestCosts(0.006, 0.007, 0.008),
    )
    result = simulate_service(Load(1, period_s=1.0, seconds=5.0), costs)
    assert result.next_s == pytest.approx([0.0156] * 5)
    assert result.answers_per_second == pytest.approx(1.0)
    # The look-up for the answer waits for the pause after that for the claim, which has passed.
    assert result.answer_s == pytest.approx([0.0246] * 5)
    assert result.service_cores == pytest.approx(0.002 * 2 + 0.0001 * 2 + 0.003 + 0.006)
    assert result.database_cores == pytest.approx(0.0002 * 2 + 0.004 + 0.007)
    assert result.labelling_cores == pytest.approx([0.003 + 0.006, 0.004 + 0.007])


def test_mean_time_at_the_event_loop_is_between_queueing_and_processor_sharing():
    # 30 answers per second, of 4 turns of 5 ms each: a utilisation of 0.6.
    load = Load(2_000, period_s=2_000 / 30, seconds=1_000.0, is_random=True)
    result = simulate_service(load, service_costs(loop_s=0.01))
    served_at_once_s = 0.02 + 0.6 * 0.02 / (2 * (1 - 0.6))
    shared_s = 0.02 / (1 - 0.6)
    assert served_at_once_s < fmean(result.next_s) + fmean(result.answer_s) < shared_s


def test_mean_wait_of_a_single_queue_is_that_of_pollaczek_and_khinchine():
    simulation = Simulation()
    server = Resource(simulation, 1)
    rng = random.Random(0)
    waits_s = []

    def customer():
        arrived_s = simulation.now_s
        yield from simulation.use(1.0, server)
        waits_s.append(simulation.now_s - arrived_s - 1.0)

    def arrivals():
        for _ in range(100_000):
            simulation.start(customer())
            yield rng.expovariate(0.7)

    simulation.start(arrivals())
    simulation.run()
    assert fmean(waits_s) == pytest.approx(0.7 / (2 * (1 - 0.7)), rel=0.05)


def run_requests(simulation, batches, arrivals_s):
    """Simulate requests that arrive at these times."""

    def request():
        yield batches.add

    for arrived_s in arrivals_s:
        simulation.start(request(), arrived_s)
    simulation.run()


def test_requests_that_arrive_during_a_batch_form_the_next_one():
    simulation = Simulation()
    sizes = []

    def process_batch(size, _):
        sizes.append(size)
        yield 1.0

    batches = Batches(simulation, process_batch, max_batch=3)

    run_requests(simulation, batches, (0.0, 0.2, 0.4, 0.6, 0.8, 5.0))
    assert sizes == [1, 3, 1, 1]


def test_batch_waits_for_more_requests():
    simulation = Simulation()
    started = []

    def process_batch(size, _):
        started.append((simulation.now_s, size))
        yield float(size)

    batches = Batches(simulation, process_batch, max_pause_s=1.5)

    run_requests(simulation, batches, (0.0, 0.2, 0.4, 2.6, 3.5, 9.0))
    assert started == [(0.0, 1), (2.5, 2), (6.0, 2), (9.5, 1)]


def test_batch_is_informed_whether_nothing_waited_before_it():
    simulation = Simulation()
    idle_before = []

    def process_batch(_size, was_idle):
        idle_before.append(was_idle)
        yield 1.0

    batches = Batches(simulation, process_batch, max_pause_s=0.0)

    run_requests(simulation, batches, (0.0, 0.5, 1.5, 9.0))
    assert idle_before == [True, False, False, True]


def test_event_loop_that_is_not_idle_takes_less_time_for_a_request():
    # The first request is parsed from 0 to 10 ms. The second one, from 5 ms, is parsed until 12 ms,
    # the first one answered until 14 ms. The second one is answered, and the first labeler's label
    # parsed, until 18 ms.
    load = Load(2, period_s=0.01, seconds=0.01801)
    result = simulate_service(load, service_costs(loop_s=0.02, further=0.2))
    assert result.next_s == pytest.approx([0.014, 0.013])


def test_varied_costs_have_their_mean_but_longer_delays():
    load = Load(1, period_s=1.0, seconds=4_000.0)
    costs = service_costs(claim=RequestCosts(0.01, 0.02, 0.03), variation=0.5)
    constant = simulate_service(load, replace(costs, variation=0.0))
    varied = simulate_service(load, costs)
    assert fmean(varied.next_s) == pytest.approx(0.06, rel=0.02)
    assert varied.service_cores == pytest.approx(0.01, rel=0.05)
    assert max(varied.next_s) > 1.5 * max(constant.next_s)


def test_other_threads_continue_while_a_batch_waits_for_the_database():
    # A claim gives up the interpreter lock after each eighth of its 80 ms.
    costs = service_costs(
        claim=RequestCosts(0.08, 0, 0.08), answer=RequestCosts(0.08, 0, 0), loop_s=0.0
    )
    load = Load(2, period_s=0.6, seconds=0.5)
    assert simulate_service(load, costs).next_s[0] == pytest.approx(0.16)


def test_saturated_process_is_limited_by_its_interpreter_lock():
    costs = service_costs(loop_s=0.02, claim=RequestCosts(0.03, 0, 0))
    saturated = Load(20, period_s=0.0, seconds=140.0, num_cores=4)
    # 70 ms of one lock per answer, whatever the number of cores; pauses are short against that.
    twice = replace(saturated, num_processes=2)
    one_core = replace(twice, num_cores=1)
    loads = (saturated, twice, one_core)
    paces = [simulate_service(load, costs).answers_per_second for load in loads]
    assert paces == pytest.approx([1 / 0.07, 2 / 0.07, 1 / 0.07], rel=0.02)


def test_claim_waits_for_an_answer_with_a_single_writer():
    costs = service_costs(claim=RequestCosts(0, 0, 0.01), answer=RequestCosts(0, 0, 0.03))
    # The first labeler's answer takes from 10 to 40 ms; the second one's claim arrives at 30 ms.
    load = Load(2, period_s=0.06, seconds=0.1)
    assert simulate_service(load, costs).next_s[:2] == pytest.approx([0.01, 0.01])
    single = replace(costs, has_one_writer=True)
    assert simulate_service(load, single).next_s[:2] == pytest.approx([0.01, 0.02])


def test_service_answers_more_if_further_requests_of_a_batch_cost_less():
    claim = RequestCosts(0.04, 0, 0)
    load = Load(20, period_s=0.0, seconds=50.0)
    paces = [
        simulate_service(
            load, service_costs(loop_s=0.01, claim=claim, further=further)
        ).answers_per_second
        for further in (1.0, 0.5, 0.0)
    ]
    assert paces == sorted(paces)
    assert paces[0] == pytest.approx(1 / 0.06, rel=0.03)
    assert paces[2] > 1.8 * paces[0]


def test_fitted_further_is_the_one_that_gave_the_pace():
    load = Load(20, period_s=0.0, seconds=5.0)
    claim = RequestCosts(0.004, 0.001, 0.001)
    costs = service_costs(loop_s=0.001, claim=claim, answer=claim, further=0.6)
    pace = simulate_service(load, costs).answers_per_second
    wrong = replace(costs, further=1.5)
    assert fitted_further(wrong, load, pace) == pytest.approx(0.6, abs=0.05)


def test_fitted_costs_are_those_of_the_simulation_that_was_measured():
    load = Load(30, period_s=1.0, seconds=20.0, is_random=True)
    full = Load(64, period_s=0.0, seconds=5.0)
    costs = service_costs(
        client_s=0.0005,
        loop_s=0.001,
        look_up=RequestCosts(0.0005, 0.0003, 0.0002),
        claim=RequestCosts(0.004, 0.002, 0.006),
        answer=RequestCosts(0.004, 0.002, 0.002),
        further=0.3,
        idle_service=0.1,
        idle_database=0.05,
    )
    measured = simulate_service(load, costs)
    saturated = simulate_service(full, costs).answers_per_second
    estimate = RequestCosts(0.02, 0.001, 0.0)
    first = replace(costs, claim=estimate, answer=estimate, further=0.9)
    fitted = fitted_costs(first, load, measured, full, saturated)
    assert fitted.claim.work_s == pytest.approx(0.004, rel=0.1)
    assert fitted.claim.database_s == pytest.approx(0.002, rel=0.1)
    assert fitted.claim.wait_s == pytest.approx(0.006, abs=0.001)
    assert fitted.answer.wait_s == pytest.approx(0.002, abs=0.001)
    assert fitted.further == pytest.approx(0.3, abs=0.05)
    assert (fitted.loop_s, fitted.client_s) == (costs.loop_s, costs.client_s)
