"""What pretrain.py knows before it reads any data: classes that streams share, and the numbers of recipes."""

# stream -> wnid of a training class -> what it is: the stream's class that it is a kind of
SHARED = {
    'cifar100': {
        'n01704323': 'triceratops: dinosaur', 'n01749939': 'green mamba: snake',
        'n01770081': 'harvestman: spider', 'n02120079': 'Arctic fox: fox', 'n02165456': 'ladybug: beetle',
        'n02606052': 'rock beauty: aquarium_fish', 'n02747177': 'ashcan: can',
        'n02823428': 'beer bottle: bottle', 'n04389033': 'tank: tank', 'n07747607': 'orange: orange',
        'n09246464': 'cliff: mountain', 'n13054560': 'bolete: mushroom'},
    # no airplane, automobile, cat, deer, frog or truck is among them, and no horse but a carousel's
    'cifar10': {
        'n01532829': 'house finch: bird', 'n01558993': 'robin: bird', 'n01843383': 'toucan: bird',
        'n02089867': 'Walker hound: dog', 'n02091831': 'Saluki: dog', 'n02101006': 'Gordon setter: dog',
        'n02105505': 'komondor: dog', 'n02108089': 'boxer: dog', 'n02108551': 'Tibetan mastiff: dog',
        'n02108915': 'French bulldog: dog', 'n02111277': 'Newfoundland: dog',
        'n02113712': 'miniature poodle: dog', 'n02687172': 'aircraft carrier: ship',
        'n04612504': 'yawl: ship'}}

RECIPES = {     # values of the flags that a recipe has and that are not given
    'compact': dict(input_size=42, epochs=20, batch_size=128, lr=0.1, warmup=1, momentum=0.9, wd=5e-4,
                    jitter=0.4, coarse=0.5),
    'rfs': dict(input_size=84, epochs=100, batch_size=64, lr=0.05, milestones=None, lr_decay=0.1,
                momentum=0.9, wd=5e-4, jitter=0.4, padding=8)}
WIDTH = dict(compact=32, rfs=64)
