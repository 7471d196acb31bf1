"""What theory and measurement say against the start of a run's network."""

import warnings
from collections.abc import Sequence

from rectifiers.initialization.report import LayerReport
from rectifiers.models.chains import warn_of_drift
from rectifiers.models.network import ImageNetwork, Network
from rectifiers.runs.config import RunConfig
from rectifiers.theory.start import warn_of_gradient


def start_warnings(
    config: RunConfig, network: ImageNetwork, init_report: Sequence[LayerReport]
) -> list[str]:
    """Warn of a start from which the network may not train, and return the sentences.

    Of chains by theory, where nothing normalises them and the weights are drawn here; of other
    networks by what `initialize` has measured."""
    is_drawn = config.init.from_weights_content is None
    if is_drawn and isinstance(network, Network):
        return _by_theory(config, network, init_report)
    if is_drawn:
        for sentence in network.start_warnings:
            warnings.warn(sentence, stacklevel=2)
        return [*network.left, *network.start_warnings]
    return list(network.left)


def _by_theory(
    config: RunConfig, network: Network, init_report: Sequence[LayerReport]
) -> list[str]:
    if config.model.norm != "none" or config.init.mode != "closed_form":
        return []
    sites, stds = network.sites(), [layer.std_asked for layer in init_report]
    are_fixed = config.init.fc_std is not None
    sentences = (
        warn_of_drift(sites),
        warn_of_gradient(sites, stds, init_report[0].rule, are_linears_fixed=are_fixed),
    )
    return [sentence for sentence in sentences if sentence]
