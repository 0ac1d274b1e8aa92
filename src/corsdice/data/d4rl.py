"""The nine locomotion tasks of D4RL (Fu et al. 2020, "D4RL: Datasets for Deep Data-Driven Reinforcement Learning").

A task is a robot and the grade of its logs. Scores are D4RL's: 0 is what a random policy returns, 100 what an expert
does; the returns of both are the constants of D4RL's own `infos.py`, the same for every grade.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

D4rlTask = Literal[
    "hopper-medium",
    "walker2d-medium",
    "halfcheetah-medium",
    "hopper-medium-replay",
    "walker2d-medium-replay",
    "halfcheetah-medium-replay",
    "hopper-medium-expert",
    "walker2d-medium-expert",
    "halfcheetah-medium-expert",
]
D4RL_TASKS: tuple[D4rlTask, ...] = get_args(D4rlTask)


class Robot(NamedTuple):
    name: str
    observation_size: int
    action_size: int
    random_return: float
    """Undiscounted, an episode."""
    expert_return: float

    def score(self, episode_return: float) -> float:
        """0 for D4RL's random policy, 100 for its expert."""
        return 100 * (episode_return - self.random_return) / (self.expert_return - self.random_return)


ROBOTS = {
    robot.name: robot
    for robot in (
        Robot("hopper", 11, 3, -20.272305, 3234.3),
        Robot("walker2d", 17, 6, 1.629008, 4592.3),
        Robot("halfcheetah", 17, 6, -280.178953, 12135.0),
    )
}


def robot_of(task: str) -> Robot:
    """The robot of one of the nine tasks."""
    return ROBOTS[task.partition("-")[0]]
