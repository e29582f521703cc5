"""Classes of miniImageNet's training split that streams share."""

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
