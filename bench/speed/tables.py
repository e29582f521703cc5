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


def digest_lines(rows: list) -> list:
    """What each engine counts of the same files: a line for each way, all streams beside each other."""
    rows = [row for row in rows if row['what'] == 'digests']
    streams = list(dict.fromkeys(row['stream'] for row in rows))
    found = {(row['way'], row['workers'], row['partitions'], row['stream']): row for row in rows}
    titles = [title for stream in streams for title in (f'{stream}: samples', 'digest', 'seconds')]
    lines = [md_row(['', 'workers', *titles]), '|---|---|' + '---|' * len(titles)]
    for way, workers, parts in dict.fromkeys(key[:3] for key in found):
        cells = []
        for row in (found.get((way, workers, parts, stream)) for stream in streams):
            cells += ['', '', ''] if row is None else [
                f"{int(row['samples']):,}", row['digest'][:16], f"{float(row['seconds']):.0f}"]
        lines.append(md_row([way, workers + f', {parts} partitions' * bool(parts), *cells]))
    return lines


def rate_lines(rows: list) -> list:
    """What counting the synthetic stream costs: a line for each engine and number of workers."""
    titles = 'engine', 'workers', 'samples', 'rows a second', 'rows a second a core', \
        'memory a worker, MB', 'read, MB', 'moved, MB'
    return [md_row(titles), '|---|---|---|---|---|---|---|---|', *(
        md_row([row['way'], row['workers'], f"{int(row['samples']):,}",
                f"{float(row['samples']) / float(row['seconds']):,.0f}",
                f"{float(row['samples']) / float(row['worker_seconds']):,.0f}",
                *(f'{float(row[name]):.0f}' for name in ('worker_mb', 'mb_read', 'mb_moved'))])
        for row in rows if row['stream'] == 'synthetic' and float(row['worker_mb'])
        and 'killed' not in row['way'])]
