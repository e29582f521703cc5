"""The tables of `bench.speed.beside`, from its rows; without torch."""
from bench.paper.tables import md_row


def request_lines(rows: list) -> list:
    """What requests leave behind: a line for each stage and way to keep sums."""
    titles = 'after', 'samples left', 'kept', 'error of what is kept', 'error of the weights', \
        'digest as if never seen', 'seconds'
    return [md_row(titles), '|---|---|---|---|---|---|---|', *(
        md_row([row['stage'], f"{int(row['left']):,}", row['keeper'],
                *(f'{float(row[name]):.1e}' if float(row[name]) else '0'
                  for name in ('kept_error', 'weights_error')),
                'yes' if str(row['same_digest']) == 'True' else 'no', f"{float(row['seconds']):.1f}"])
        for row in sorted(rows, key=lambda row: -int(row['left'])))]


def learner_lines(rows: list) -> list:
    """Time and accuracy: a line for each set of features and learner."""
    titles = 'features', 'd', 'learner', 'learn all but a class', 'add it', 'remove another', \
        'accuracy, shuffled', 'classes in order', 'a class added'
    return [md_row(titles), '|---|---|---|---|---|---|---|---|---|', *(
        md_row([row['features'], row['d'], row['learner'],
                *(f'{float(row[name]):.2f} s' if row.get(name) not in (None, '') else 'cannot'
                  for name in ('seconds', 'seconds_to_add', 'seconds_to_remove')),
                *(f'{float(row[name]):.2f}' for name in ('accuracy', 'accuracy_in_order',
                                                          'accuracy_added'))])
        for row in rows)]
